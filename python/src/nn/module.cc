// SPDX-License-Identifier: Apache-2.0
//
// The module fovea._nn: trainable layers (python/fovea/nn.py). A separate module, so that using
// only attention does not require oneDNN. Masks, rotary embedding and the translation of C++
// exceptions come from fovea._fovea, which the package imports first.

#include <nanobind/nanobind.h>

#include "fovea/nn/signal_stack.h"

#include "arrays/arguments.h"
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
  name_arguments_in_errors(module);
  // Python's signal handlers run and return while layers compute.
  if (in_main_thread()) fovea::nn::use_signal_stack();
}
