// SPDX-License-Identifier: Apache-2.0
//
// The loss of a scene's wishes, its gradient, and the check that wishes are met (wishes.h).

#include "train/wishes.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "fovea/error.h"

namespace fovea::train {
namespace {

// The tolerance for wishes of 0 and 1, because softmax weights are never exactly 0 or 1.
constexpr double kOutOfReach = 0.005;
// The share of the remaining weight that is added to the target. With the wished weight itself as
// the target, training would approach it but never meet it.
constexpr double kBeyond = 0.1;
// A lower bound that keeps logarithms and quotients finite.
constexpr double kMin = 1e-300;

[[noreturn]] void fail(const scene::Wish& wish, const char* message) {
  throw InvalidArgument(fmt::format("{}: {}", wish.place, message));
}

/// Returns aim log(aim / weight), or NaN if the weight is NaN.
double divergence(double aim, double weight) {
  if (std::isnan(weight)) return weight;
  return aim > 0.0 ? aim * std::log(aim / std::max(weight, kMin)) : 0.0;
}

}  // namespace

Wishes::Wishes(const scene::Scene& scene, const TensorView& visible) : wishes_(scene.learn) {
  for (std::size_t begin = 0; begin < wishes_.size();) {
    std::vector<const scene::Wish*> of_query;
    double sum = 0.0;
    std::size_t end = begin;
    for (; end < wishes_.size() && wishes_[end].item == wishes_[begin].item &&
           wishes_[end].query == wishes_[begin].query;
         ++end) {
      of_query.push_back(&wishes_[end]);
      sum += wishes_[end].weight;
    }
    for (const scene::Wish* wish : of_query) {
      enough_.push_back(wish->weight * std::min(1.0, (1.0 - kOutOfReach) / std::max(sum, kMin)));
    }
    for (std::int64_t head = 0; head < visible.extent(1); ++head) {
      add_row(of_query, head, visible, !scene.options.score.sinks.empty());
    }
    begin = end;
  }
}

void Wishes::add_row(const std::vector<const scene::Wish*>& wishes, std::int64_t head,
                     const TensorView& visible, bool has_sinks) {
  const std::int64_t item = wishes[0]->item, query = wishes[0]->query;
  const auto sees = [&](std::int64_t key) { return visible.at<bool>({item, head, query, key}); };
  Row row{item, head, query, {}, 0.0};
  double sum = 0.0;
  for (const scene::Wish* wish : wishes) {
    if (sees(wish->key)) {
      row.keys.push_back({wish->key, wish->weight});
    } else if (wish->weight > 0.0) {
      fail(*wish,
           "expected a key that the query sees, got one that is masked: its weight is 0, whatever "
           "is learned");
    }
    sum += wish->weight;
  }
  std::int64_t seen = 0;
  for (std::int64_t key = 0; key < visible.extent(3); ++key) seen += sees(key) ? 1 : 0;
  const bool alone = seen == static_cast<std::int64_t>(row.keys.size()) && !has_sinks;
  if (alone && sum == 0.0) {
    if (row.keys.empty()) return;  // fully masked, and only wishes for 0
    fail(*wishes[0], "expected another visible key, got none: the query sees no other");
  }
  // If no other key is visible to the query, the wished keys share the whole weight.
  const double left = std::max(0.0, 1.0 - sum);
  for (Key& key : row.keys) {
    if (sum > 0.0) key.aim += key.aim / sum * left * (alone ? 1.0 : kBeyond);
  }
  row.rest = alone ? 0.0 : left * (sum > 0.0 ? 1.0 - kBeyond : 1.0);
  rows_.push_back(std::move(row));
}

double Wishes::Row::rest_of(const TensorView& weights) const {
  double named = 0.0;
  for (const Key& key : keys) named += weight(key, weights);
  return std::isnan(named) ? named : std::max(1.0 - named, std::numeric_limits<double>::epsilon());
}

double Wishes::loss(const TensorView& weights) const {
  double sum = 0.0;
  for (const Row& row : rows_) {
    for (const Key& key : row.keys) sum += divergence(key.aim, row.weight(key, weights));
    sum += divergence(row.rest, row.rest_of(weights));
  }
  return rows_.empty() ? 0.0 : sum / static_cast<double>(rows_.size());
}

Tensor Wishes::gradient(const TensorView& weights) const {
  Tensor gradient(DType::kFloat64, weights.shape());
  const auto count = static_cast<double>(rows_.size());
  for (const Row& row : rows_) {
    // The remaining weight is 1 - the sum of the keys' weights, hence the opposite sign.
    const double of_rest = row.rest / row.rest_of(weights);
    for (const Key& key : row.keys) {
      const double of_key = key.aim / std::max(row.weight(key, weights), kMin);
      gradient.at<double>({row.item, row.head, row.query, key.key}) = (of_rest - of_key) / count;
    }
  }
  return gradient;
}

bool Wishes::met(std::int64_t wish, const TensorView& weights) const {
  const auto number = static_cast<std::size_t>(wish);
  const bool none = wishes_[number].weight == 0.0;
  return std::ranges::all_of(found(wish, weights), [&](double weight) {
    return none ? weight <= kOutOfReach : weight >= enough_[number];
  });
}

std::int64_t Wishes::met(const TensorView& weights) const {
  std::int64_t sum = 0;
  for (std::int64_t wish = 0; wish < count(); ++wish) sum += met(wish, weights) ? 1 : 0;
  return sum;
}

std::vector<double> Wishes::found(std::int64_t wish, const TensorView& weights) const {
  const scene::Wish& of = wishes_[static_cast<std::size_t>(wish)];
  std::vector<double> found;
  for (std::int64_t head = 0; head < weights.extent(1); ++head) {
    found.push_back(weights.value({of.item, head, of.query, of.key}));
  }
  return found;
}

}  // namespace fovea::train
