// SPDX-License-Identifier: Apache-2.0
//
// Checks of recorded attentions (check.h).

#include "recording/check.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/fail.h"
#include "recording/format.h"
#include "text/text_width.h"

namespace fovea::recording {
namespace {

void require(bool holds, const std::string& name, const std::string& expected,
             const TensorView& got) {
  if (holds) return;
  fail("{}: expected {}, got {} {}", shown(name), expected, dtype_name(got.dtype()),
       to_string(got.shape()));
}

}  // namespace

std::string shown(std::string_view name) {
  return fmt::format("\"{}\"", fit(visible(name), kShownColumns));
}

void check_tensors(const RecordedAttention& attention) {
  const auto named = [&](const char* what) { return tensor_name(attention.name, what); };
  for (const auto& [what, tensor] :
       {std::pair{"query", &attention.query}, {"key", &attention.key}, {"lse", &attention.lse}}) {
    if (!tensor->defined()) fail("{}: expected a tensor, got nothing", shown(named(what)));
  }
  const TensorView& query = attention.query;
  const TensorView& key = attention.key;
  require(query.rank() == 4 && is_float(query.dtype()), named("query"),
          "floats [batch, q_heads, q_len, head_dim]", query);
  const bool key_fits = key.rank() == 4 && key.dtype() == query.dtype() &&
                        key.extent(0) == query.extent(0) && key.extent(3) == query.extent(3);
  require(key_fits, named("key"),
          fmt::format("{} [{}, kv_heads, kv_len, {}], as the query is", dtype_name(query.dtype()),
                      query.extent(0), query.extent(3)),
          key);
  const std::int64_t q_heads = query.extent(1), kv_heads = key.extent(1);
  const bool grouped = kv_heads > 0 ? q_heads % kv_heads == 0 : q_heads == 0;
  require(grouped, named("key"),
          fmt::format("a number of heads that divides {}, the heads of the query", q_heads), key);
  const DType lse_type = query.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  const Shape lse_shape{query.extent(0), q_heads, query.extent(2)};
  require(attention.lse->dtype() == lse_type && attention.lse->shape() == lse_shape, named("lse"),
          fmt::format("{} {}, one per query", dtype_name(lse_type), to_string(lse_shape)),
          attention.lse);
  if (!attention.value.defined()) return;
  const TensorView& value = attention.value;
  bool value_fits = value.rank() == 4 && value.dtype() == key.dtype();
  for (int dim = 0; value_fits && dim < 3; ++dim) value_fits = value.extent(dim) == key.extent(dim);
  require(value_fits, named("value"),
          fmt::format("{} [{}, {}, {}, value_dim], as the key is", dtype_name(key.dtype()),
                      key.extent(0), key.extent(1), key.extent(2)),
          value);
}

void check_fit(const RecordedAttention& attention, const ProblemShape& shape,
               const std::vector<TokenList>& tokens) {
  const auto& heads = attention.heads;
  if (!heads.empty()) {
    if (std::ssize(heads) != shape.q_heads) {
      fail("heads: expected {}, one per head of the query, got {}", shape.q_heads, heads.size());
    }
    if (std::adjacent_find(heads.begin(), heads.end(), std::greater_equal<>()) != heads.end()) {
      fail("heads: expected ascending numbers, got {}", fmt::join(heads, ", "));
    }
  }
  for (const auto& [what, names, length] :
       {std::tuple{"query_tokens", &attention.query_tokens, shape.q_len},
        std::tuple{"key_tokens", &attention.key_tokens, shape.kv_len}}) {
    if (names->size() > 1 && std::ssize(*names) != shape.batch) {
      fail("{}: expected 1 list or one per batch item ({}), got {}", what, shape.batch,
           names->size());
    }
    for (const std::string& name : *names) {
      const auto list = std::find_if(tokens.begin(), tokens.end(),
                                     [&](const TokenList& each) { return each.name == name; });
      if (list == tokens.end()) {
        fail("{}: expected the name of a token list, got {}", what, shown(name));
      }
      if (list->size() != length) {
        fail("{}: expected {} tokens, as the tensors have, got {} in {}", what, length,
             list->size(), shown(name));
      }
    }
  }
}

}  // namespace fovea::recording
