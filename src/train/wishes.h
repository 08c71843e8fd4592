// SPDX-License-Identifier: Apache-2.0
//
// The weights that a scene asks to be learned, as a loss to minimise.

#pragma once

#include <cstdint>
#include <vector>

#include "fovea/scene.h"
#include "fovea/tensor.h"

namespace fovea::train {

class Wishes {
 public:
  /// `visible` [batch, heads, queries, keys] is false for masked keys. Throws InvalidArgument,
  /// naming the wish, if no weights can meet it.
  Wishes(const scene::Scene& scene, const TensorView& visible);

  std::int64_t count() const { return static_cast<std::int64_t>(wishes_.size()); }

  // Weights are [batch, heads, queries, keys], of any floating-point dtype.

  /// Returns the mean of sum(target log(target / weight)) over the rows with wishes. The sum is
  /// over the row's wished keys, and all other keys of the row count as one class.
  double loss(const TensorView& weights) const;
  /// Returns the gradient of the loss with respect to the weights, in float64. A wanted weight that
  /// has underflowed to 0 cannot be learned, because softmax passes no gradient to its score.
  Tensor gradient(const TensorView& weights) const;
  bool met(std::int64_t wish, const TensorView& weights) const;
  std::int64_t met(const TensorView& weights) const;
  /// Returns the query's weight on the key, per head.
  std::vector<double> found(std::int64_t wish, const TensorView& weights) const;

 private:
  struct Key {
    std::int64_t key;
    double aim;
  };
  /// One query of one head.
  struct Row {
    std::int64_t item, head, query;
    std::vector<Key> keys;
    double rest;  // target for the total weight of all other keys

    double weight(const Key& key, const TensorView& weights) const {
      return weights.value({item, head, query, key.key});
    }
    double rest_of(const TensorView& weights) const;
  };

  void add_row(const std::vector<const scene::Wish*>& wishes, std::int64_t head,
               const TensorView& visible, bool has_sinks);

  std::vector<scene::Wish> wishes_;
  std::vector<double> enough_;  // per wish, the smallest weight that meets it
  std::vector<Row> rows_;
};

}  // namespace fovea::train
