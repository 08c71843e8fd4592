// SPDX-License-Identifier: Apache-2.0
//
// A program outside Fovea, as a user writes one: it includes the public headers and prints "ok".
// consumer_test.py builds it in every way that is supported.

#include <cstdio>

#include "fovea/error.h"
#include "fovea/tensor.h"

int main() {
  fovea::Tensor scores = fovea::Tensor::matrix({{1.0, 2.0}, {3.0, 4.0}});
  if (fovea::to_string(scores.shape()) != "[2, 2]" || scores.at<double>({1, 0}) != 3.0) return 1;
  try {
    fovea::Tensor::matrix({{1.0, 2.0}, {3.0}});
    return 1;
  } catch (const fovea::InvalidArgument&) {
    // An exception that crosses the library's border keeps its type.
  }
  std::puts("ok");
}
