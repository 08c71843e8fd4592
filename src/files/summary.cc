// SPDX-License-Identifier: Apache-2.0
//
// Minimum, maximum and sum (summary.h). Elements are processed in blocks that fit into the L1 cache
// and are converted to float if necessary. The loops over a block have one accumulator per lane, so
// that compilers vectorise them.

#include "files/summary.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "core/element_type.h"

namespace fovea {
namespace {

constexpr std::size_t kBlock = 4096;
constexpr std::size_t kLanes = 16;
constexpr std::size_t kBlocksPerReport = 4096;

/// Accumulated results of all blocks.
struct Totals {
  double least = std::numeric_limits<double>::infinity();
  double greatest = -std::numeric_limits<double>::infinity();
  double sum = 0.0;
  std::int64_t nans = 0;
  std::int64_t infinities = 0;
  std::int64_t least_integer = std::numeric_limits<std::int64_t>::max();
  std::int64_t greatest_integer = std::numeric_limits<std::int64_t>::min();
  // Sums of the upper and lower halves of int64 values, separate so that neither overflows.
  std::int64_t upper_sum = 0;
  std::uint64_t lower_sum = 0;
};

/// Accumulators of a block, one per lane. Values that are not finite are ignored.
template <class Float>
class FloatLanes {
 public:
  FloatLanes() {
    least_.fill(std::numeric_limits<Float>::infinity());
    greatest_.fill(-std::numeric_limits<Float>::infinity());
  }

  void add(const Float* x, std::size_t lanes) {
    constexpr Float kInfinity = std::numeric_limits<Float>::infinity();
    for (std::size_t i = 0; i < lanes; ++i) {
      const bool finite = std::abs(x[i]) < kInfinity;
      const Float low = finite ? x[i] : kInfinity;
      const Float high = finite ? x[i] : -kInfinity;
      least_[i] = low < least_[i] ? low : least_[i];
      greatest_[i] = high > greatest_[i] ? high : greatest_[i];
      sum_[i] += static_cast<double>(finite ? x[i] : Float{0});
      finite_[i] += finite ? 1 : 0;
    }
  }

  std::int64_t add_to(Totals& totals) const {
    std::int64_t finite = 0;
    for (std::size_t i = 0; i < kLanes; ++i) {
      totals.least = std::min(totals.least, static_cast<double>(least_[i]));
      totals.greatest = std::max(totals.greatest, static_cast<double>(greatest_[i]));
      totals.sum += sum_[i];
      finite += finite_[i];
    }
    return finite;
  }

 private:
  std::array<Float, kLanes> least_;
  std::array<Float, kLanes> greatest_;
  std::array<double, kLanes> sum_ = {};
  std::array<std::int32_t, kLanes> finite_ = {};
};

template <class Float>
void add_floats(std::span<const Float> block, Totals& totals) {
  FloatLanes<Float> lanes;
  std::size_t i = 0;
  for (; i + kLanes <= block.size(); i += kLanes) lanes.add(block.data() + i, kLanes);
  lanes.add(block.data() + i, block.size() - i);
  const std::int64_t finite = lanes.add_to(totals);
  if (finite == static_cast<std::int64_t>(block.size())) return;
  const auto nans =
      std::count_if(block.begin(), block.end(), [](Float x) { return std::isnan(x); });
  totals.nans += nans;
  totals.infinities += static_cast<std::int64_t>(block.size()) - finite - nans;
}

void add_block(std::span<const float> block, Totals& totals) { add_floats(block, totals); }
void add_block(std::span<const double> block, Totals& totals) { add_floats(block, totals); }

/// Converts a float16 to float without the branches of Float16's own conversion: shifts the bits
/// into a float and scales it by 2^112.
float widened(Float16 half) {
  const std::uint32_t size = static_cast<std::uint32_t>(half.bits & 0x7fff) << 13;
  const std::uint32_t sign = static_cast<std::uint32_t>(half.bits & 0x8000) << 16;
  const auto scaled = std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) * 0x1p112F);
  const std::uint32_t bits = (half.bits & 0x7c00) == 0x7c00 ? size | 0x7f800000 : scaled;
  return std::bit_cast<float>(bits | sign);
}

float widened(BFloat16 half) { return static_cast<float>(half); }

template <class Half>
void add_halves(std::span<const Half> block, Totals& totals) {
  std::array<float, kBlock> floats;
  for (std::size_t i = 0; i < block.size(); ++i) floats[i] = widened(block[i]);
  add_floats(std::span<const float>(floats).first(block.size()), totals);
}

void add_block(std::span<const Float16> block, Totals& totals) { add_halves(block, totals); }
void add_block(std::span<const BFloat16> block, Totals& totals) { add_halves(block, totals); }

void add_block(std::span<const std::int64_t> block, Totals& totals) {
  for (const std::int64_t x : block) {
    totals.least_integer = std::min(totals.least_integer, x);
    totals.greatest_integer = std::max(totals.greatest_integer, x);
    totals.upper_sum += x >> 32;
    totals.lower_sum += static_cast<std::uint64_t>(x) & 0xffffffff;
  }
}

void add_block(std::span<const bool> block, Totals& totals) {
  const auto ones = std::count(block.begin(), block.end(), true);
  if (ones > 0) totals.greatest_integer = 1;
  if (ones < static_cast<std::int64_t>(block.size())) totals.least_integer = 0;
  totals.least_integer = std::min(totals.least_integer, std::int64_t{1});
  totals.greatest_integer = std::max(totals.greatest_integer, std::int64_t{0});
  totals.lower_sum += static_cast<std::uint64_t>(ones);
}

template <class T>
Totals totals_of(const void* data, std::int64_t count, const SummaryProgress& progress) {
  Totals totals;
  const std::span<const T> all(static_cast<const T*>(data), static_cast<std::size_t>(count));
  for (std::size_t i = 0, blocks = 0; i < all.size(); i += kBlock, ++blocks) {
    add_block(all.subspan(i, std::min(kBlock, all.size() - i)), totals);
    if (progress && blocks % kBlocksPerReport == kBlocksPerReport - 1) {
      progress(static_cast<double>(i) / static_cast<double>(all.size()));
    }
  }
  return totals;
}

Totals totals_of(const TensorView& tensor, const SummaryProgress& progress) {
  return with_element(tensor.dtype(), [&](auto zero) {
    return totals_of<decltype(zero)>(tensor.data(), tensor.size(), progress);
  });
}

/// Returns whether the elements are dense in memory, in any order of the dimensions.
bool is_dense(const TensorView& tensor) {
  std::vector<int> dims;
  for (int dim = 0; dim < tensor.rank(); ++dim) {
    if (tensor.extent(dim) != 1) dims.push_back(dim);
  }
  std::sort(dims.begin(), dims.end(),
            [&](int a, int b) { return tensor.strides()[a] < tensor.strides()[b]; });
  std::int64_t step = 1;
  for (const int dim : dims) {
    if (tensor.strides()[dim] != step) return false;
    step *= tensor.extent(dim);
  }
  return true;
}

/// Computes the mean when the sum overflows float64.
double mean_of_large(const TensorView& tensor, std::int64_t count) {
  double mean = 0.0;
  for_each_index(tensor.shape(), [&](const Index& index) {
    const double x = tensor.value(index);
    if (std::isfinite(x)) mean += x / static_cast<double>(count);
  });
  return mean;
}

}  // namespace

Summary summarize(const TensorView& tensor, const SummaryProgress& progress) {
  if (tensor.size() == 0) return {};
  if (!is_dense(tensor)) return summarize(Tensor(tensor), progress);
  const Totals totals = totals_of(tensor, progress);
  Summary summary = {.count = tensor.size(), .nans = totals.nans, .infinities = totals.infinities};
  const auto finite = static_cast<double>(summary.finite());
  if (is_float(tensor.dtype())) {
    if (summary.finite() == 0) return summary;
    summary.least = totals.least;
    summary.greatest = totals.greatest;
    summary.mean =
        std::isfinite(totals.sum) ? totals.sum / finite : mean_of_large(tensor, summary.finite());
    return summary;
  }
  summary.least_integer = totals.least_integer;
  summary.greatest_integer = totals.greatest_integer;
  summary.least = static_cast<double>(totals.least_integer);
  summary.greatest = static_cast<double>(totals.greatest_integer);
  summary.mean =
      (static_cast<double>(totals.upper_sum) * 0x1p32 + static_cast<double>(totals.lower_sum)) /
      finite;
  return summary;
}

}  // namespace fovea
