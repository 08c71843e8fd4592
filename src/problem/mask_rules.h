// SPDX-License-Identifier: Apache-2.0
//
// Helpers for masks: combining causal and prefix rules, counting visible keys, and taking a mask
// apart.

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fovea/export.h"
#include "fovea/mask.h"
#include "fovea/tensor.h"

#include "core/tensor_memory.h"

namespace fovea {

/// Returns the mask for a causal flag and an optional prefix. With both, it is the mask of a prefix
/// language model: the prefix is fully visible, the rest is causal. Callers combine further rules
/// by `&`.
inline Mask causal_or_prefix(bool is_causal, const std::optional<std::int64_t>& prefix_keys) {
  if (!prefix_keys) return is_causal ? causal() : Mask();
  return is_causal ? causal() | prefix(*prefix_keys) : prefix(*prefix_keys);
}

/// Returns the number of keys visible to a row. `row.key` is ignored; `visible` is scratch memory.
std::int64_t count_visible(const Mask& mask, ScorePosition row, std::int64_t kv_len,
                           std::vector<std::uint8_t>& visible);

/// The rule or operator at the root of a mask, for code that writes masks.
struct MaskRule {
  enum class Kind : std::uint8_t {
    kNothing,  ///< no rule: every key is visible
    kCausal,
    kWindow,
    kPrefix,
    kDocuments,
    kKeyLengths,
    kDense,
    kBoth,   ///< `&`
    kEither  ///< `|`
  };
  Kind kind = Kind::kNothing;
  std::vector<std::int64_t> numbers = {};  ///< of window, prefix and key_lengths
  Tensor query_ids = {}, key_ids = {};     ///< of documents
  TensorRef dense = {};
  std::vector<Mask> operands = {};  ///< the two operands of an operator
};
FOVEA_API MaskRule rule_of(const Mask& mask);

/// Returns whether a call with this mask reads some of the memory. Dense masks are read in place;
/// other rules have copies.
bool reads(const Mask& mask, const Memory& memory);

}  // namespace fovea
