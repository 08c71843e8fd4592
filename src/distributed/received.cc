// SPDX-License-Identifier: Apache-2.0
//
// attention_received on sharded tensors (fovea/distributed.h): sums that follow the keys around the
// ring.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "fovea/distributed.h"

#include "distributed/agreement.h"
#include "distributed/arguments.h"
#include "distributed/reduce.h"
#include "distributed/rows.h"
#include "distributed/summing_pass.h"
#include "distributed/weights_pass.h"
#include "engine/call/outputs.h"
#include "engine/weights/weights_call.h"

namespace fovea::distributed {
namespace {

class ReceivedPass : private KeysAlone, public SummingPass {
 public:
  ReceivedPass(Transport& transport, const ShardedWeightInputs& inputs,
               const AttentionOptions& options, const ProblemShape& shape,
               const ReceivedAttention& received)
      : KeysAlone(inputs),
        SummingPass(transport, keys, options, shape),
        received_(received),
        counts_(received.histogram.defined() ? static_cast<std::size_t>(received.histogram.size())
                                             : 0) {}

  void run() {
    SummingPass::run(0, [](std::byte*) {});
    reduce(transport_, std::span(counts_),
           [](std::int64_t before, std::int64_t own) { return before + own; });
    std::size_t from = 0;
    if (counts_.empty()) return;
    for_each_index(received_.histogram.shape(), [&](const Index& at) {
      received_.histogram.at<std::int64_t>(at) = counts_[from++];
    });
  }

 private:
  /// The totals of a piece, in this order; those that are not wanted are undefined.
  std::array<MutableTensorView, 3> totals(const KeyPiece& piece, std::byte* at) const {
    std::array<MutableTensorView, 3> totals;
    const Shape shape{shape_.batch, shape_.q_heads, piece.positions.size()};
    const std::array outputs = {&received_.sum, &received_.largest, &received_.recent};
    for (std::size_t i = 0; i < totals.size(); ++i) {
      if (!outputs[i]->defined()) continue;
      totals[i] = {at, DType::kFloat32, shape};
      at += aligned(bytes_of(totals[i]));
    }
    return totals;
  }

  std::size_t sum_bytes(const std::vector<KeyPiece>& pieces) const override {
    std::size_t wanted = 0, bytes = 0;
    for (const auto* output : {&received_.sum, &received_.largest, &received_.recent}) {
      if (output->defined()) ++wanted;
    }
    for (const KeyPiece& piece : pieces) {
      const std::int64_t numbers = shape_.batch * shape_.q_heads * piece.positions.size();
      bytes += wanted * aligned(static_cast<std::size_t>(numbers) * sizeof(float));
    }
    return bytes;
  }

  /// Adds the sums of a piece, or takes the larger ones.
  void merge(const KeyPiece& piece, std::byte* more, std::byte* sums) const {
    const std::array from = totals(piece, more), to = totals(piece, sums);
    for (std::size_t i = 0; i < to.size(); ++i) {
      if (!to[i].defined()) continue;
      const auto* const numbers = static_cast<const float*>(from[i].data());
      auto* const totals = static_cast<float*>(to[i].data());
      for (std::int64_t n = 0; n < to[i].size(); ++n) {
        // The second entry is the largest weight; NaN stays.
        if (i != 1) {
          totals[n] += numbers[n];
        } else if (!(numbers[n] <= totals[n]) && !std::isnan(totals[n])) {
          totals[n] = numbers[n];
        }
      }
    }
  }

  void compute(const KeyPiece& piece, const PieceTensors& tensors, std::byte* sums) override {
    const std::size_t bytes = sum_bytes({piece});
    std::fill_n(sums, bytes, std::byte{});
    std::vector<std::byte> more(bytes + kHeaderBytes);
    constexpr auto kAll = std::numeric_limits<std::int64_t>::max();
    for_each_block(piece, kAll, [&](const Block& block, const AttentionOptions& options) {
      std::ranges::fill(more, std::byte{});
      const auto own = totals(piece, more.data());
      ReceivedAttention part{.sum = own[0], .largest = own[1]};
      // Of the last queries of all, those in this block.
      const std::int64_t end = block.range.first_query + block.range.queries;
      part.recent_queries =
          std::min(end - (shape_.q_len - received_.recent_queries), block.range.queries);
      if (part.recent_queries > 0) part.recent = own[2];
      Tensor histogram;
      if (!counts_.empty()) histogram = Tensor(DType::kInt64, received_.histogram.shape());
      part.histogram = histogram.view();
      fovea::attention_received({rows_from(inputs_.query, block.first, block.range.queries),
                                 tensors.key, rows_from(lse, block.first, block.range.queries)},
                                options, part);
      merge(piece, more.data(), sums);
      for (std::size_t i = 0; i < counts_.size(); ++i) {
        counts_[i] += histogram.span<std::int64_t>()[i];
      }
    });
  }

  void combine(const std::vector<KeyPiece>& pieces, const std::byte* before,
               std::byte* sums) const override {
    std::vector<std::byte> copy(before, before + sum_bytes(pieces));
    std::byte* from = copy.data();
    for (const KeyPiece& piece : pieces) {
      merge(piece, from, sums);
      from += sum_bytes({piece});
      sums += sum_bytes({piece});
    }
  }

  void write(const std::vector<KeyPiece>& pieces, std::byte* sums) override {
    for (const KeyPiece& piece : pieces) {
      const auto found = totals(piece, sums);
      const std::array outputs = {&received_.sum, &received_.largest, &received_.recent};
      for (std::size_t i = 0; i < found.size(); ++i) {
        if (found[i].defined()) {
          copy_rows(found[i], rows_from(*outputs[i], piece.first, piece.positions.size()));
        }
      }
      sums += sum_bytes({piece});
    }
  }

  const ReceivedAttention& received_;
  std::vector<std::int64_t> counts_;  // of the histogram
};

std::string words_of_totals(const ReceivedAttention& received) {
  std::string text = fmt::format("totals of the last {} queries", received.recent_queries);
  if (received.sum.defined()) text += ", sum";
  if (received.largest.defined()) text += ", largest";
  if (received.recent.defined()) text += ", recent";
  if (received.histogram.defined()) {
    text += fmt::format(", histogram {}", to_string(received.histogram.shape()));
  }
  return text;
}

}  // namespace

void attention_received(Transport& transport, const ShardedWeightInputs& inputs,
                        const AttentionOptions& options, const ReceivedAttention& received) {
  ProblemShape shape;
  const ShardedInputs keys{inputs.query, inputs.key, inputs.key, inputs.queries, inputs.keys};
  check_and_agree(transport, [&](std::vector<SharedArgument>& arguments) {
    shape = check_weight_inputs(transport, keys, options);
    check_lse(keys, shape, inputs.lse);
    // Recent queries may be those of any rank.
    engine::Problem own = own_problem(keys, options, shape);
    own.shape.q_len = shape.q_len;
    engine::OutputChecks checks(own);
    engine::check_received(own, received, checks);
    arguments = shared_arguments("attention_received", keys, options, words_of_totals(received));
  });
  std::optional<ReceivedPass> pass;
  do_on_all(transport, [&] { pass.emplace(transport, inputs, options, shape, received); });
  pass->run();
}

}  // namespace fovea::distributed
