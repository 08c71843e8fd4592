// SPDX-License-Identifier: Apache-2.0
//
// The module fovea._nn: layers that learn, for Python (python/fovea/nn.py). By itself, so that who
// wants attention alone does without oneDNN. Masks and rotary embedding are those of fovea._fovea,
// and so is what turns exceptions into Python's: the package imports that first.

#include <nanobind/nanobind.h>

#include "fovea/nn/signal_stack.h"

#include "arrays/arrays.h"
#include "arrays/interrupt.h"
#include "nn/layer.h"

NB_MODULE(_nn, module) {
  using namespace fovea::python;
  import_numpy();
  add_model(module);
  add_layers(module);
  add_transformer(module);
  add_recurrent(module);
  add_training(module);
  // Python's own handlers return while layers compute.
  if (in_main_thread()) fovea::nn::use_signal_stack();
}
