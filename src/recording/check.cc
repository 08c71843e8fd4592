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

#include "core/fail.h"
#include "problem/float32_options.h"
#include "problem/problem_shape.h"
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

bool fits_dim(std::int64_t extent) { return extent >= 1 && extent <= kMaxDim; }

}  // namespace

std::string shown(std::string_view name) {
  return fmt::format("\"{}\"", fit(visible(name), kShownColumns));
}

TokenIndex index_of(const std::vector<TokenList>& tokens) {
  TokenIndex index;
  index.reserve(tokens.size());
  for (const TokenList& each : tokens) index.emplace(each.name, &each);
  return index;
}

void check_tensors(const RecordedAttention& attention) {
  const auto named = [&](const char* what) { return tensor_name(attention.name, what); };
  for (const auto& [what, tensor] :
       {std::pair{"query", &attention.query}, {"key", &attention.key}, {"lse", &attention.lse}}) {
    if (!tensor->defined()) fail("{}: expected a tensor, got nothing", shown(named(what)));
  }
  const TensorView& query = attention.query;
  const TensorView& key = attention.key;
  const bool four = query.rank() == 4 && is_float(query.dtype());
  require(four && query.extent(0) > 0 && query.extent(1) > 0 && fits_dim(query.extent(3)),
          named("query"),
          fmt::format("floats [batch, q_heads, q_len, head_dim], where only q_len may be 0 and "
                      "head_dim is at most {}",
                      kMaxDim),
          query);
  if (query.extent(2) == 0) {
    require(query.extent(0) <= kMaxHeadsWithoutQueries / query.extent(1), named("query"),
            fmt::format("at most {} heads in all batch items where there are no queries",
                        kMaxHeadsWithoutQueries),
            query);
  }
  const bool key_fits = key.rank() == 4 && key.dtype() == query.dtype() &&
                        key.extent(0) == query.extent(0) && key.extent(3) == query.extent(3);
  require(key_fits, named("key"),
          fmt::format("{} [{}, kv_heads, kv_len, {}], as the query is", dtype_name(query.dtype()),
                      query.extent(0), query.extent(3)),
          key);
  const std::int64_t q_heads = query.extent(1), kv_heads = key.extent(1);
  require(kv_heads > 0 && q_heads % kv_heads == 0, named("key"),
          fmt::format("a number of heads that divides {}, the heads of the query", q_heads), key);
  const DType lse_type = query.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  const Shape lse_shape{query.extent(0), q_heads, query.extent(2)};
  require(attention.lse->dtype() == lse_type && attention.lse->shape() == lse_shape, named("lse"),
          fmt::format("{} {}, one per query", dtype_name(lse_type), to_string(lse_shape)),
          attention.lse);
  if (!attention.value.defined()) return;
  const TensorView& value = attention.value;
  bool value_fits = value.rank() == 4 && value.dtype() == key.dtype() && fits_dim(value.extent(3));
  for (int dim = 0; value_fits && dim < 3; ++dim) value_fits = value.extent(dim) == key.extent(dim);
  require(
      value_fits, named("value"),
      fmt::format("{} [{}, {}, {}, value_dim], as the key is, where value_dim is from 1 to {}",
                  dtype_name(key.dtype()), key.extent(0), key.extent(1), key.extent(2), kMaxDim),
      value);
}

void check_options(const AttentionOptions& options, const ProblemShape& shape, DType query_type,
                   std::int64_t head_dim) {
  validate(options, shape);
  if (query_type == DType::kFloat64) return;
  check_float32(options.score, score_scale(options.score, head_dim));
}

void check_fit(const RecordedAttention& attention, const ProblemShape& shape,
               const TokenIndex& tokens) {
  const auto& heads = attention.heads;
  if (!heads.empty()) {
    if (std::ssize(heads) != shape.q_heads) {
      fail("heads: expected {}, one per head of the query, got {}", shape.q_heads, heads.size());
    }
    const auto descent = std::adjacent_find(heads.begin(), heads.end(), std::greater_equal<>());
    if (descent != heads.end()) {
      fail("heads: expected ascending numbers, got {} after {}", descent[1], descent[0]);
    }
    if (heads.front() < 0 || heads.back() > kMaxIndex) {
      fail("heads: expected numbers from 0 to {}, got {}", kMaxIndex,
           heads.front() < 0 ? heads.front() : heads.back());
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
      const auto found = tokens.find(name);
      if (found == tokens.end()) {
        fail("{}: expected the name of a token list, got {}", what, shown(name));
      }
      const std::int64_t size = found->second->size();
      if (size != length) {
        fail("{}: expected {} tokens, as the tensors have, got {} in {}", what, length, size,
             shown(name));
      }
    }
  }
}

void check_grid(const TokenList& list) {
  const std::int64_t rows = list.grid_rows, columns = list.grid_columns;
  if (rows == 0 && columns == 0) return;
  if (rows < 1 || columns < 1 || rows > list.size() / columns) {
    fail("{}: expected a grid of 1 to {} patches, as many as there are tokens, got {} x {}",
         shown(list.name), list.size(), rows, columns);
  }
}

}  // namespace fovea::recording
