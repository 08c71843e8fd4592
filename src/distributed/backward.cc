// SPDX-License-Identifier: Apache-2.0
//
// attention_backward on sharded tensors (fovea/distributed.h). The gradients of keys and values are
// sums that follow them around the ring (summing_pass.h). Those of biases, tables and sinks are
// collected in float64, and added in the order of ranks.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fovea/attention_backward.h"
#include "fovea/distributed.h"

#include "core/element_type.h"
#include "core/fail.h"
#include "distributed/agreement.h"
#include "distributed/arguments.h"
#include "distributed/reduce.h"
#include "distributed/rows.h"
#include "distributed/summing_pass.h"
#include "engine/backward/backward_problem.h"

namespace fovea::distributed {
namespace {

/// Calls `work` with the addresses of each row of two tensors of the same shape [batch, heads,
/// length, dim].
template <class Work>
void for_each_row(const TensorView& from, const MutableTensorView& to, const Work& work) {
  if (to.size() == 0) return;
  for_each_index({to.extent(0), to.extent(1), to.extent(2), 1},
                 [&](const Index& at) { work(from.address(at), to.address(at)); });
}

/// Adds float32 numbers.
void add_rows(const TensorView& from, const MutableTensorView& to) {
  for_each_row(from, to, [&](const void* more, void* sums) {
    for (std::int64_t c = 0; c < to.extent(3); ++c) {
      static_cast<float*>(sums)[c] += static_cast<const float*>(more)[c];
    }
  });
}

/// Copies float32 numbers to a tensor of any type.
void write_rows(const TensorView& from, const MutableTensorView& to) {
  with_element(to.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each_row(from, to, [&](const void* numbers, void* row) {
      for (std::int64_t c = 0; c < to.extent(3); ++c) {
        static_cast<T*>(row)[c] = static_cast<T>(static_cast<const float*>(numbers)[c]);
      }
    });
  });
}

/// Returns float32 numbers in memory that begins at `at`, in the shape of a piece of `like`.
MutableTensorView sums_of(const TensorView& like, std::int64_t length, std::byte* at) {
  Shape shape = like.shape();
  shape[2] = length;
  return {at, DType::kFloat32, shape};
}

/// The gradient of an option that all ranks have, of which each rank computes a part.
class OptionGradient {
 public:
  /// `output` may be undefined. If `own_rows` is true, a rank writes only the rows of its queries,
  /// in dimension rank - 2; otherwise all ranks get the sum over ranks.
  OptionGradient(const MutableTensorView& output, bool own_rows)
      : output_(output), own_rows_(own_rows) {
    if (output.defined()) sums_.resize(static_cast<std::size_t>(output.size()));
  }

  bool wanted() const { return output_.defined(); }
  /// Adds a part, whose element 0 is at `first`.
  void add(const TensorView& part, const Index& first) {
    const Strides strides = contiguous_strides(output_.shape());
    for_each_index(part.shape(), [&](const Index& at) {
      std::int64_t to = 0;
      for (int dim = 0; dim < at.rank(); ++dim) to += (first[dim] + at[dim]) * strides[dim];
      sums_[static_cast<std::size_t>(to)] += part.value(at);
    });
  }
  void add(double number, std::int64_t at) { sums_[static_cast<std::size_t>(at)] += number; }

  /// Writes the gradient. Collective.
  void finish(Transport& transport, const std::vector<PositionRange>& rows) {
    if (!wanted()) return;
    if (!own_rows_) {
      reduce(transport, std::span(sums_), [](double before, double own) { return before + own; });
    }
    std::size_t from = 0;
    for_each_index(output_.shape(), [&](const Index& at) {
      const double sum = sums_[from++];
      const auto is_own = [&](const PositionRange& range) {
        const std::int64_t row = at[at.rank() - 2];
        return row >= range.begin && row < range.end;
      };
      if (!own_rows_ || std::ranges::any_of(rows, is_own)) set_value(output_, at, sum);
    });
  }

 private:
  const MutableTensorView output_;
  const bool own_rows_;
  std::vector<double> sums_;
};

/// The backward pass of one rank.
class BackwardPass : public SummingPass {
 public:
  BackwardPass(Transport& transport, const ShardedInputs& inputs, const BackwardInputs& tensors,
               const AttentionOptions& options, const ProblemShape& shape,
               const AttentionGradients& gradients)
      : SummingPass(transport, inputs, options, shape),
        tensors_(tensors),
        gradients_(gradients),
        bias_(gradients.grad_bias, bias_has_rows()),
        relative_(gradients.grad_relative, false),
        sinks_(gradients.grad_sinks, false),
        begun_(static_cast<std::size_t>(inputs.query.extent(2))) {}

  void run() {
    std::size_t most_sums = 0;
    for (int owner = 0; owner < ranks(); ++owner) {
      most_sums = std::max(most_sums, sum_bytes(RingPlan::ranges_of(inputs_.keys, owner)));
    }
    const std::size_t queries =
        gradients_.grad_query.defined()
            ? aligned(bytes_of(sums_of(inputs_.query, own_queries(), nullptr)))
            : 0;
    SummingPass::run(most_sums + 2 * queries, [&](std::byte* memory) {
      more_sums_ = memory;
      more_query_sums_ = memory + most_sums;
      query_sums_ = gradients_.grad_query;
      if (query_sums_.defined() && query_sums_.dtype() != DType::kFloat32) {
        query_sums_ = sums_of(inputs_.query, own_queries(), more_query_sums_ + queries);
      }
    });
    if (sinks_.wanted()) add_sinks();
    const std::vector<PositionRange>& rows = inputs_.queries.ranges(rank());
    for (OptionGradient* gradient : {&bias_, &relative_, &sinks_}) {
      gradient->finish(transport_, rows);
    }
  }

 private:
  std::size_t sum_bytes(const std::vector<KeyPiece>& pieces) const override {
    std::size_t bytes = 0;
    for (const KeyPiece& piece : pieces) {
      const std::int64_t length = piece.positions.size();
      if (gradients_.grad_key.defined()) {
        bytes += aligned(bytes_of(sums_of(inputs_.key, length, nullptr)));
      }
      if (gradients_.grad_value.defined()) {
        bytes += aligned(bytes_of(sums_of(inputs_.value, length, nullptr)));
      }
    }
    return bytes;
  }

  /// Adds the gradients of all queries of this rank that see keys of the piece.
  void compute(const KeyPiece& piece, const PieceTensors& piece_tensors, std::byte* at) override {
    MutableTensorView key_sums, value_sums;
    if (gradients_.grad_key.defined()) {
      key_sums = sums_of(piece_tensors.key, piece.positions.size(), at);
      at += aligned(bytes_of(key_sums));
    }
    if (gradients_.grad_value.defined()) {
      value_sums = sums_of(piece_tensors.value, piece.positions.size(), at);
    }
    constexpr auto kAll = std::numeric_limits<std::int64_t>::max();
    bool keys_begun = false;
    for_each_block(piece, kAll, [&](const Block& block, const AttentionOptions& options) {
      const auto rows = [&](const auto& tensor) {
        return tensor.defined() ? rows_from(tensor, block.first, block.range.queries) : tensor;
      };
      // The first gradients are written in place, further ones are added.
      std::byte* next = more_sums_;
      const auto place = [&](const MutableTensorView& sums, bool begun) {
        if (!begun || !sums.defined()) return sums;
        const MutableTensorView more = sums_of(sums, sums.extent(2), next);
        next += aligned(bytes_of(more));
        return more;
      };
      const auto begun = std::span(begun_).subspan(static_cast<std::size_t>(block.first),
                                                   static_cast<std::size_t>(block.range.queries));
      const bool queries_begun =
          std::ranges::any_of(begun, [](std::uint8_t one) { return one != 0; });
      const MutableTensorView query_sums = rows(query_sums_);
      Tensor bias, relative;
      if (bias_.wanted()) bias = Tensor(DType::kFloat32, options.score.bias->shape());
      if (relative_.wanted()) relative = Tensor(DType::kFloat32, gradients_.grad_relative.shape());
      const AttentionGradients gradients{
          .grad_query = queries_begun && query_sums.defined()
                            ? sums_of(query_sums, block.range.queries, more_query_sums_)
                            : query_sums,
          .grad_key = place(key_sums, keys_begun),
          .grad_value = place(value_sums, keys_begun),
          .grad_bias = bias.view(),
          .grad_relative = relative.view()};
      engine::backward_of_some_keys({.query = rows(inputs_.query),
                                     .key = piece_tensors.key,
                                     .value = piece_tensors.value,
                                     .context = rows(tensors_.context),
                                     .lse = rows(tensors_.lse),
                                     .grad_context = rows(tensors_.grad_context),
                                     .grad_lse = rows(tensors_.grad_lse)},
                                    options, gradients);
      if (queries_begun && query_sums.defined()) {
        clear_rows(query_sums_, block.first, block.first + block.range.queries);
        add_rows(gradients.grad_query, query_sums);
      }
      if (keys_begun && key_sums.defined()) add_rows(gradients.grad_key, key_sums);
      if (keys_begun && value_sums.defined()) add_rows(gradients.grad_value, value_sums);
      if (bias_.wanted()) bias_.add(bias, place_in_bias(block.range));
      if (relative_.wanted()) relative_.add(relative, {0, 0});
      std::ranges::fill(begun, std::uint8_t{1});
      keys_begun = true;
    });
    for (const MutableTensorView* const sums : {&key_sums, &value_sums}) {
      if (!keys_begun && sums->size() > 0) std::memset(sums->data(), 0, bytes_of(*sums));
    }
  }

  void combine(const std::vector<KeyPiece>& pieces, const std::byte* before,
               std::byte* sums) const override {
    const auto* const received = reinterpret_cast<const float*>(before);
    auto* const own = reinterpret_cast<float*>(sums);
    const std::size_t count = sum_bytes(pieces) / sizeof(float);
    for (std::size_t i = 0; i < count; ++i) own[i] += received[i];
  }

  void write(const std::vector<KeyPiece>& pieces, std::byte* at) override {
    if (query_sums_.defined()) {
      clear_rows(query_sums_, 0, own_queries());
      if (query_sums_.data() != gradients_.grad_query.data()) {
        write_rows(query_sums_, gradients_.grad_query);
      }
    }
    for (const KeyPiece& piece : pieces) {
      const std::int64_t length = piece.positions.size();
      for (const auto& [like, gradient] : {std::pair(&inputs_.key, &gradients_.grad_key),
                                           std::pair(&inputs_.value, &gradients_.grad_value)}) {
        if (!gradient->defined()) continue;
        const MutableTensorView sums = sums_of(*like, length, at);
        write_rows(sums, rows_from(*gradient, piece.first, length));
        at += aligned(bytes_of(sums));
      }
    }
  }

  /// Sets the rows that have no sums yet to 0.
  void clear_rows(const MutableTensorView& sums, std::int64_t begin, std::int64_t end) const {
    for_each_index({sums.extent(0), sums.extent(1), end - begin, 1}, [&](const Index& at) {
      if (begun_[static_cast<std::size_t>(begin + at[2])] != 0) return;
      std::fill_n(static_cast<float*>(sums.address({at[0], at[1], begin + at[2], 0})),
                  sums.extent(3), 0.0F);
    });
  }

  /// Returns whether the bias has a row for each query.
  bool bias_has_rows() const {
    const TensorRef& bias = options_.score.bias;
    return bias.defined() && bias->rank() >= 2 && bias->extent(bias->rank() - 2) > 1;
  }

  /// Returns the place of a block's bias in the whole bias.
  Index place_in_bias(const PairRange& range) const {
    const Shape shape = options_.score.bias->shape();
    Index first = shape;
    for (int dim = 0; dim < first.rank(); ++dim) first[dim] = 0;
    const int rank = shape.rank();
    if (rank >= 1 && shape[rank - 1] > 1) first[rank - 1] = range.first_key;
    if (rank >= 2 && shape[rank - 2] > 1) first[rank - 2] = range.first_query;
    return first;
  }

  /// Adds the gradients of sinks. With s the weight of the sink, that of a row is
  /// s (grad_lse - rowsum(dO O)).
  void add_sinks() {
    for_each_index({shape_.batch, shape_.q_heads, own_queries()}, [&](const Index& at) {
      const auto head = static_cast<std::size_t>(at[1]);
      const double sink = options_.score.sinks[head];
      if (std::isinf(sink)) return;  // -inf: there is none
      const double weight = std::exp(sink - tensors_.lse.value(at));
      double change = tensors_.grad_lse.defined() ? tensors_.grad_lse.value(at) : 0.0;
      for (std::int64_t c = 0; c < tensors_.context.extent(3); ++c) {
        const Index element{at[0], at[1], at[2], c};
        change -= tensors_.grad_context.value(element) * tensors_.context.value(element);
      }
      sinks_.add(weight * change, at[1]);
    });
  }

  std::int64_t own_queries() const { return inputs_.query.extent(2); }

  const BackwardInputs& tensors_;
  const AttentionGradients& gradients_;
  OptionGradient bias_, relative_, sinks_;
  MutableTensorView query_sums_;     // of this rank's queries; undefined if not wanted
  std::vector<std::uint8_t> begun_;  // by query: whether it has sums
  std::byte* more_sums_ = nullptr;   // gradients of a piece to be added
  std::byte* more_query_sums_ = nullptr;
};

/// Checks the gradients, and returns the names of those that are wanted.
std::string check_gradients(const ShardedInputs& inputs, const BackwardInputs& tensors,
                            const AttentionOptions& options, const ProblemShape& shape,
                            const AttentionGradients& gradients) {
  if (inputs.query.dtype() == DType::kFloat64) {
    fail_argument("dtype",
                  "expected float32, float16 or bfloat16 for gradients of sharded tensors, got {}",
                  dtype_name(inputs.query.dtype()));
  }
  if (gradients.lenses != nullptr &&
      (gradients.lenses->relevance.defined() || gradients.lenses->magnitude.defined())) {
    fail_argument("lenses", "expected nothing with sharded tensors, got a tensor");
  }
  engine::validate_backward(own_problem(inputs, options, shape), tensors, gradients);
  std::string names = tensors.grad_lse.defined() ? "with grad_lse" : "without grad_lse";
  for (const auto& [name, gradient] : {std::pair("grad_query", &gradients.grad_query),
                                       {"grad_key", &gradients.grad_key},
                                       {"grad_value", &gradients.grad_value},
                                       {"grad_bias", &gradients.grad_bias},
                                       {"grad_relative", &gradients.grad_relative},
                                       {"grad_sinks", &gradients.grad_sinks}}) {
    if (gradient->defined()) names += std::string(", ") + name;
  }
  return names;
}

}  // namespace

void attention_backward(Transport& transport, const ShardedBackwardInputs& inputs,
                        const AttentionOptions& options, const AttentionGradients& gradients) {
  const BackwardInputs& tensors = inputs.tensors;
  const ShardedInputs forward{tensors.query, tensors.key, tensors.value, inputs.queries,
                              inputs.keys};
  ProblemShape shape;
  check_and_agree(transport, [&](std::vector<SharedArgument>& arguments) {
    shape = check_inputs(transport, forward, options);
    arguments = shared_arguments("attention_backward", forward, options,
                                 check_gradients(forward, tensors, options, shape, gradients));
  });
  std::optional<BackwardPass> pass;
  do_on_all(transport,
            [&] { pass.emplace(transport, forward, tensors, options, shape, gradients); });
  pass->run();
}

}  // namespace fovea::distributed
