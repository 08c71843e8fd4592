// SPDX-License-Identifier: Apache-2.0
//
// What a scene's author wants of its weights, as a loss that can be made smaller.

#pragma once

#include <cstdint>
#include <vector>

#include "fovea/scene.h"
#include "fovea/tensor.h"

namespace fovea::train {

class Wishes {
 public:
  /// `visible` [batch, heads, queries, keys] says which keys take part. Throws InvalidArgument,
  /// naming the wish, for one that no weights can fulfil.
  Wishes(const scene::Scene& scene, const TensorView& visible);

  std::int64_t count() const { return static_cast<std::int64_t>(wishes_.size()); }

  // The weights are [batch, heads, queries, keys], of any type of float.

  /// The mean over the rows with wishes of sum(aim log(aim / weight)), over their keys and the rest
  /// of the row as one.
  double loss(const TensorView& weights) const;
  /// Its gradient with respect to the weights, float64. Where a wanted weight is 0 already, beyond
  /// what float64 can tell, there is nothing to go by.
  Tensor gradient(const TensorView& weights) const;
  bool met(std::int64_t wish, const TensorView& weights) const;
  std::int64_t met(const TensorView& weights) const;
  /// What the query gives to the key in each head.
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
    double rest;  // aimed at for all other keys together

    double weight(const Key& key, const TensorView& weights) const {
      return weights.value({item, head, query, key.key});
    }
    double rest_of(const TensorView& weights) const;
  };

  void add_row(const std::vector<const scene::Wish*>& wishes, std::int64_t head,
               const TensorView& visible, bool has_sinks);

  std::vector<scene::Wish> wishes_;
  std::vector<double> enough_;  // by wish: from here on it is met
  std::vector<Row> rows_;
};

}  // namespace fovea::train
