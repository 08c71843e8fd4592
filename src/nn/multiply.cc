// SPDX-License-Identifier: Apache-2.0
//
// Matrix products and affine maps (multiply.h).

#include "nn/multiply.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <new>
#include <stdexcept>

#include <dnnl.h>
#include <fmt/format.h>
#include <omp.h>

#include "nn/rows.h"
#include "nn/stop.h"

namespace fovea::nn {
namespace {

std::int64_t rows_of(const Factor& f) { return f.matrix.extent(f.is_transposed ? 1 : 0); }
std::int64_t columns_of(const Factor& f) { return f.matrix.extent(f.is_transposed ? 0 : 1); }

double element(const Factor& f, std::int64_t row, std::int64_t column) {
  return f.is_transposed ? f.matrix.at<double>({column, row}) : f.matrix.at<double>({row, column});
}

// Without AVX-512, oneDNN splits products, and the sums in them, by the thread count: with two
// threads, most bits of a 30 x 30 x 3000 product change. Therefore Fovea splits the result into
// blocks that do not depend on the thread count, and computes each block on one thread. With
// AVX-512, oneDNN distributes the whole product, because blocks would take up to 1.8 times as long
// on two threads if the result is small and the sums are long; some of these then have other last
// bits with another number of threads.
bool in_blocks() {
  static const bool blocks =
      (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core) != dnnl_cpu_isa_avx512_core;
  return blocks;
}
constexpr std::int64_t kBlock = 128;  // rows and columns

/// Limits oneDNN to one thread while in scope. OpenMP's setting is the only limit that oneDNN
/// reads.
class OneThread {
 public:
  OneThread() { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_ = omp_get_max_threads();
};

/// Limits oneDNN to one thread in forked children, where it would wait for threads that no longer
/// exist.
void leave_threads_out_of_forked_children() {
  if (engine::thread_count({}, omp_get_max_threads()) == 1) omp_set_num_threads(1);
}

void sgemm(const Factor& left, const Factor& right, const MutableTensorView& result, bool add) {
  const std::int64_t rows = rows_of(left), inner = columns_of(left), columns = columns_of(right);
  // A single row may have any stride, but oneDNN rejects strides below the row's width.
  const auto pitch = [](const auto& matrix) {
    return std::max(matrix.strides()[0], std::max<std::int64_t>(1, matrix.extent(1)));
  };
  const dnnl_status_t status =
      dnnl_sgemm(left.is_transposed ? 'T' : 'N', right.is_transposed ? 'T' : 'N', rows, columns,
                 inner, 1.0f, static_cast<const float*>(left.matrix.data()), pitch(left.matrix),
                 static_cast<const float*>(right.matrix.data()), pitch(right.matrix),
                 add ? 1.0f : 0.0f, static_cast<float*>(result.data()), pitch(result));
  if (status == dnnl_out_of_memory) throw std::bad_alloc();
  if (status != dnnl_success) {
    throw std::runtime_error(fmt::format("oneDNN: a product of {} x {} x {} failed with status {}",
                                         rows, inner, columns, static_cast<int>(status)));
  }
}

/// Returns the block of `matrix` that starts at `begin` along `dimension` (0 or 1): kBlock rows or
/// columns, or fewer at the end.
template <class View>
View block_of(const View& matrix, int dimension, std::int64_t begin) {
  Shape shape = matrix.shape();
  shape[dimension] = std::min(kBlock, shape[dimension] - begin);
  const Index first =
      dimension == 0 ? Index{begin, std::int64_t{0}} : Index{std::int64_t{0}, begin};
  return {matrix.address(first), matrix.dtype(), shape, matrix.strides()};
}

void sgemm_in_blocks(const Factor& left, const Factor& right, const MutableTensorView& result,
                     bool add) {
  const std::int64_t across = (result.extent(1) + kBlock - 1) / kBlock;
  const std::int64_t blocks = (result.extent(0) + kBlock - 1) / kBlock * across;
  for_each_range(blocks, 1, [&](std::int64_t block, std::int64_t) {
    const std::int64_t row = block / across * kBlock, column = block % across * kBlock;
    const OneThread one;
    sgemm({block_of(left.matrix, left.is_transposed ? 1 : 0, row), left.is_transposed},
          {block_of(right.matrix, right.is_transposed ? 0 : 1, column), right.is_transposed},
          block_of(block_of(result, 0, row), 1, column), add);
  });
}

void multiply_float64(const Factor& left, const Factor& right, const MutableTensorView& result,
                      bool add) {
  for_each_index(result.shape(), [&](const Index& at) {
    if (at[1] == 0) throw_if_stopped();
    double sum = add ? result.at<double>(at) : 0.0;
    for (std::int64_t k = 0; k < columns_of(left); ++k) {
      sum += element(left, at[0], k) * element(right, k, at[1]);
    }
    result.at<double>(at) = sum;
  });
}

}  // namespace

void multiply(const Factor& left, const Factor& right, const MutableTensorView& result, bool add) {
  const std::int64_t rows = rows_of(left), columns = columns_of(right);
  assert(rows_of(right) == columns_of(left) && result.shape() == Shape({rows, columns}));
  if (rows == 0 || columns == 0) return;
  throw_if_stopped();
  if (result.dtype() == DType::kFloat64) return multiply_float64(left, right, result, add);
  // If the inner dimension is empty, blocks have no first element to address, and there are no sums
  // to split.
  if (in_blocks() && columns_of(left) > 0) {
    sgemm_in_blocks(left, right, result, add);
  } else {
    leave_threads_out_of_forked_children();
    sgemm(left, right, result, add);
  }
}

void affine(const TensorView& x, const TensorView& weight, const TensorView& bias,
            const MutableTensorView& y) {
  if (bias.defined()) {
    const std::size_t bytes = static_cast<std::size_t>(y.extent(1)) * dtype_size(y.dtype());
    for_each_rows(y.extent(0), y.extent(1), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) std::memcpy(y.address({r, 0}), bias.data(), bytes);
    });
  }
  multiply({x}, transposed(weight), y, bias.defined());
}

void affine_backward(const TensorView& grad_y, const TensorView& x, const TensorView& weight,
                     const MutableTensorView& grad_weight, const MutableTensorView& grad_bias,
                     const MutableTensorView& grad_x, bool add_to_grad_x) {
  multiply(transposed(grad_y), {x}, grad_weight, true);
  if (grad_bias.defined()) add_column_sums(grad_y, grad_bias);
  multiply({grad_y}, {weight}, grad_x, add_to_grad_x);
}

}  // namespace fovea::nn
