// SPDX-License-Identifier: Apache-2.0
//
// The module fovea._fovea: Python bindings of the C++ library, re-exported by the package
// (python/fovea). Each add_...() is defined in a file of its own.

#include <exception>

#include <nanobind/nanobind.h>

#include "arrays/arguments.h"
#include "arrays/arrays.h"
#include "arrays/calls.h"
#include "functions.h"

namespace nb = nanobind;

NB_MODULE(_fovea, module) {
  using namespace fovea::python;
  // Objects in the caller's globals at exit are not leaks of this module.
  nb::set_leak_warnings(false);
  import_numpy();
  // Translates exceptions of nanobind functions; the METH_FASTCALL ones use guarded().
  nb::register_exception_translator(
      [](const std::exception_ptr& thrown, void*) {
        try {
          std::rethrow_exception(thrown);
        } catch (...) {
          translate_exception();
        }
      },
      nullptr);
  add_masks(module);
  add_dropout(module);
  add_attention(module);
  add_gradients(module);
  add_attention_backward(module);
  add_lenses(module);
  add_heads(module);
  add_weights(module);
  add_scaled_dot_product_attention(module);
  add_reference(module);
  add_cache(module);
  add_scene(module);
  add_recording(module);
  add_analyses(module);
  add_distributed(module);
  add_random(module);
  add_info(module);
  add_fingerprint(module);
  name_arguments_in_errors(module);
}
