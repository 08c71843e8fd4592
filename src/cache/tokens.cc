// SPDX-License-Identifier: Apache-2.0
//
// Argument checks of the caches (tokens.h).

#include "cache/tokens.h"

#include <string>

#include "core/fail.h"
#include "core/tensor_memory.h"

namespace fovea {

void validate_tokens(const TensorView& tensor, const Shape& expected, std::string_view name,
                     std::string_view what) {
  const int token = expected.rank() - 2;
  Shape shape = expected;
  const bool any_length = expected[token] < 0;
  if (any_length && tensor.defined() && tensor.rank() == expected.rank()) {
    shape[token] = tensor.extent(token);
  }
  if (!tensor.defined() || tensor.shape() != shape) {
    std::string numbers;
    for (int dim = 0; dim < expected.rank(); ++dim) {
      numbers += dim == 0 ? "[" : ", ";
      numbers += dim == token && any_length ? "n" : std::to_string(expected[dim]);
    }
    fail_argument(name, "expected {} = {}], got {}", what, numbers,
                  tensor.defined() ? to_string(tensor.shape()) : "nothing");
  }
  if (!is_float(tensor.dtype())) {
    fail_argument(name, "expected float32, float64, float16 or bfloat16, got {}",
                  dtype_name(tensor.dtype()));
  }
  memory_of(tensor, name);
}

void validate_part(std::int64_t part, std::int64_t length, std::string_view name) {
  if (part < 0 || part > length) {
    fail_argument(name, "expected 0 to {} tokens, got {}", length, part);
  }
}

}  // namespace fovea
