// SPDX-License-Identifier: Apache-2.0
//
// Each function adds one part of the module fovea._fovea.

#pragma once

#include <nanobind/nanobind.h>

namespace fovea::python {

void add_attention(nanobind::module_& module);
void add_scaled_dot_product_attention(nanobind::module_& module);
void add_masks(nanobind::module_& module);
void add_dropout(nanobind::module_& module);
void add_gradients(nanobind::module_& module);
void add_attention_backward(nanobind::module_& module);
void add_lenses(nanobind::module_& module);
void add_heads(nanobind::module_& module);
void add_weights(nanobind::module_& module);
void add_reference(nanobind::module_& module);
void add_cache(nanobind::module_& module);
void add_scene(nanobind::module_& module);
void add_recording(nanobind::module_& module);
void add_analyses(nanobind::module_& module);
void add_distributed(nanobind::module_& module);
void add_random(nanobind::module_& module);
void add_info(nanobind::module_& module);
void add_fingerprint(nanobind::module_& module);

}  // namespace fovea::python
