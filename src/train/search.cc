// SPDX-License-Identifier: Apache-2.0
//
// Greedy and beam search (search.h).

#include "train/search.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "train/vocabulary.h"

namespace fovea::train {
namespace {

/// Several sources as one tensor, padded with kPadding.
struct Sources {
  Tensor tokens;
  std::vector<std::int64_t> lengths;

  explicit Sources(std::span<const std::vector<std::int64_t>> sources) {
    std::size_t longest = 0;
    for (const auto& source : sources) {
      lengths.push_back(static_cast<std::int64_t>(source.size()));
      longest = std::max(longest, source.size());
    }
    tokens = Tensor(DType::kInt64, {static_cast<std::int64_t>(sources.size()),
                                    static_cast<std::int64_t>(longest)});
    auto to = tokens.span<std::int64_t>().begin();
    for (const auto& source : sources) {
      std::ranges::copy(source, to);
      to += static_cast<std::ptrdiff_t>(longest);
    }
  }
};

/// Returns the log-softmax of one row. kPadding and kBegin are excluded by a logit of -1e30,
/// because they are never output.
std::vector<double> log_shares(const TensorView& logits, std::int64_t row) {
  std::vector<double> shares(static_cast<std::size_t>(logits.extent(1)));
  for (std::size_t i = 0; i < shares.size(); ++i) {
    shares[i] = logits.value({row, static_cast<std::int64_t>(i)});
  }
  shares[kPadding] = shares[kBegin] = -1e30;
  const double largest = *std::ranges::max_element(shares);
  double sum = 0.0;
  for (const double share : shares) sum += std::exp(share - largest);
  for (double& share : shares) share -= largest + std::log(sum);
  return shares;
}

/// Appends a row of weights, without the source's padding.
void add_weights(std::vector<float>& rows, const Tensor& weights, std::int64_t row,
                 std::int64_t length) {
  const auto from = weights.span<float>().begin() + row * weights.extent(1);
  rows.insert(rows.end(), from, from + length);
}

Tensor as_matrix(const std::vector<float>& rows, std::int64_t width) {
  return Tensor::from({static_cast<std::int64_t>(rows.size()) / width, width}, rows);
}

}  // namespace

std::vector<Translation> translate_greedily(Translator& translator,
                                            std::span<const std::vector<std::int64_t>> sources,
                                            std::int64_t most) {
  const auto count = static_cast<std::int64_t>(sources.size());
  std::vector<Translation> translations(sources.size());
  if (count == 0) return translations;
  std::vector<std::vector<float>> weights(sources.size());
  const Sources read(sources);
  translator.begin(read.tokens, read.lengths, count);
  Tensor next(DType::kInt64, {count});
  std::ranges::fill(next.span<std::int64_t>(), kBegin);
  std::int64_t open = count;
  for (std::int64_t step = 0; step < most && open > 0; ++step) {
    const Tensor logits(TensorView(translator.step(next)));
    const Tensor looked = translator.weights();
    for (std::int64_t i = 0; i < count; ++i) {
      Translation& translation = translations[static_cast<std::size_t>(i)];
      if (!translation.tokens.empty() && translation.tokens.back() == kEnd) continue;
      const std::vector<double> shares = log_shares(logits, i);
      const auto best = std::ranges::max_element(shares) - shares.begin();
      translation.tokens.push_back(best);
      translation.log_probability += shares[static_cast<std::size_t>(best)];
      add_weights(weights[static_cast<std::size_t>(i)], looked, i,
                  read.lengths[static_cast<std::size_t>(i)]);
      next.at<std::int64_t>({i}) = best;
      if (best == kEnd) --open;
    }
  }
  for (std::size_t i = 0; i < sources.size(); ++i) {
    translations[i].weights = as_matrix(weights[i], read.lengths[i]);
  }
  return translations;
}

Translation translate_with_beams(Translator& translator, const std::vector<std::int64_t>& source,
                                 std::int64_t beams, std::int64_t most) {
  struct Hypothesis {
    std::vector<std::int64_t> tokens;
    std::vector<float> weights;
    double log_probability = 0.0;

    double mean() const { return log_probability / static_cast<double>(tokens.size()); }
  };
  struct Next {
    std::int64_t beam, token;
    double log_probability;
  };
  const Sources read(std::span(&source, 1));
  const std::int64_t length = read.lengths[0];
  translator.begin(read.tokens, read.lengths, 1);
  std::vector<Hypothesis> open(1), ended;
  for (std::int64_t step = 0; step < most && !open.empty(); ++step) {
    Tensor tokens(DType::kInt64, {static_cast<std::int64_t>(open.size())});
    for (std::size_t i = 0; i < open.size(); ++i) {
      tokens.span<std::int64_t>()[i] = step == 0 ? kBegin : open[i].tokens.back();
    }
    const Tensor logits(TensorView(translator.step(tokens)));
    const Tensor looked = translator.weights();
    std::vector<Next> candidates;
    for (std::size_t i = 0; i < open.size(); ++i) {
      const auto beam = static_cast<std::int64_t>(i);
      const std::vector<double> shares = log_shares(logits, beam);
      for (std::size_t token = kEnd; token < shares.size(); ++token) {
        candidates.push_back(
            {beam, static_cast<std::int64_t>(token), open[i].log_probability + shares[token]});
      }
    }
    const auto kept = std::min(candidates.size(), static_cast<std::size_t>(beams));
    std::ranges::partial_sort(candidates, candidates.begin() + static_cast<std::ptrdiff_t>(kept),
                              std::ranges::greater(), &Next::log_probability);
    std::vector<Hypothesis> going;
    std::vector<std::int64_t> rows;
    for (std::size_t i = 0; i < kept; ++i) {
      const Next& next = candidates[i];
      Hypothesis hypothesis = open[static_cast<std::size_t>(next.beam)];
      hypothesis.tokens.push_back(next.token);
      hypothesis.log_probability = next.log_probability;
      add_weights(hypothesis.weights, looked, next.beam, length);
      if (next.token == kEnd) {
        ended.push_back(std::move(hypothesis));
      } else {
        going.push_back(std::move(hypothesis));
        rows.push_back(next.beam);
      }
    }
    open = std::move(going);
    if (static_cast<std::int64_t>(ended.size()) >= beams) break;
    if (!open.empty()) translator.reorder(rows);
  }
  if (ended.empty()) ended = std::move(open);
  const Hypothesis& best = *std::ranges::max_element(ended, {}, &Hypothesis::mean);
  return {best.tokens, best.log_probability, as_matrix(best.weights, length)};
}

}  // namespace fovea::train
