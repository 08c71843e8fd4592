// SPDX-License-Identifier: Apache-2.0
//
// Docstrings of the functions on arrays. inspect.signature() parses their first line.

#pragma once

namespace fovea::python {

const char* attention_doc();
const char* decode_doc();
const char* attention_backward_doc();
const char* reference_attention_doc();
const char* reference_steps_doc();
const char* reference_gradients_doc();
const char* heads_doc();
const char* weights_doc();
const char* received_doc();
const char* scaled_dot_product_attention_doc();

}  // namespace fovea::python
