// SPDX-License-Identifier: Apache-2.0
//
// shard, scatter and gather (fovea/distributed.h).

#include <array>
#include <vector>

#include <fmt/format.h>

#include "fovea/distributed.h"

#include "core/fail.h"
#include "distributed/agreement.h"
#include "distributed/arguments.h"
#include "distributed/reduce.h"
#include "distributed/rows.h"

namespace fovea::distributed {
namespace {

/// The shape and type of a tensor, as bytes.
struct Description {
  std::int64_t dtype = 0;
  std::int64_t rank = 0;
  std::array<std::int64_t, kMaxRank> extents{};

  explicit Description(const TensorView& tensor = {})
      : dtype(static_cast<std::int64_t>(tensor.dtype())), rank(tensor.rank()) {
    for (int dim = 0; dim < tensor.rank(); ++dim) {
      extents[static_cast<std::size_t>(dim)] = tensor.extent(dim);
    }
  }
  DType type() const { return static_cast<DType>(dtype); }
  Shape shape() const { return Shape(std::span(extents).first(static_cast<std::size_t>(rank))); }
};

void check_sharding_and_root(const Transport& transport, const Sharding& sharding, int root) {
  if (sharding.ranks() != transport.size()) {
    fail_argument("sharding", "expected one among {} ranks, got {}", transport.size(),
                  sharding.to_string());
  }
  check_root(transport, root);
}

void check_length(const TensorView& tensor, const char* name, std::int64_t length) {
  if (!tensor.defined() || tensor.rank() < 3 || tensor.extent(2) != length) {
    fail_argument(name, "expected [batch, heads, length, ...] with length {}, got {}", length,
                  tensor.defined() ? to_string(tensor.shape()) : "nothing");
  }
}

/// Copies the part of a rank into the whole tensor.
void place(const TensorView& part, const Sharding& sharding, int rank,
           const MutableTensorView& whole) {
  std::int64_t first = 0;
  for (const PositionRange& range : sharding.ranges(rank)) {
    copy_rows(rows_from(part, first, range.size()), rows_from(whole, range.begin, range.size()));
    first += range.size();
  }
}

}  // namespace

Tensor shard(const TensorView& whole, const Sharding& sharding, int rank) {
  check_length(whole, "whole", sharding.length());
  Shape shape = whole.shape();
  shape[2] = sharding.length(rank);
  Tensor part(whole.dtype(), shape);
  std::int64_t first = 0;
  for (const PositionRange& range : sharding.ranges(rank)) {
    copy_rows(rows_from(whole, range.begin, range.size()),
              rows_from(part.view(), first, range.size()));
    first += range.size();
  }
  return part;
}

Tensor scatter(Transport& transport, const Sharding& sharding, const TensorView& whole, int root) {
  const int rank = transport.rank();
  check_and_agree(transport, [&](std::vector<SharedArgument>& arguments) {
    check_sharding_and_root(transport, sharding, root);
    if (rank == root) check_length(whole, "whole", sharding.length());
    arguments = {{"operation", "scatter"},
                 {"sharding", sharding.to_string()},
                 {"root", fmt::format("{}", root)}};
  });
  std::vector<Description> all(static_cast<std::size_t>(transport.size()));
  const Description own(rank == root ? whole : TensorView());
  transport.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
  if (rank == root) {
    for (int to = 0; to < transport.size(); ++to) {
      if (to == root) continue;
      Tensor part = shard(whole, sharding, to);
      exchange_now(transport, {.to = to, .send = bytes_in(part)});
    }
    return shard(whole, sharding, root);
  }
  const Description& described = all[static_cast<std::size_t>(root)];
  Shape shape = described.shape();
  shape[2] = sharding.length(rank);
  Tensor part(described.type(), shape);
  exchange_now(transport, {.from = root, .receive = bytes_in(part)});
  return part;
}

Tensor gather(Transport& transport, const Sharding& sharding, const TensorView& part, int root) {
  const int rank = transport.rank();
  Shape shape;
  check_and_agree(transport, [&](std::vector<SharedArgument>& arguments) {
    check_sharding_and_root(transport, sharding, root);
    check_length(part, "part", sharding.length(rank));
    shape = part.shape();
    shape[2] = sharding.length();
    arguments = {{"operation", "gather"},
                 {"sharding", sharding.to_string()},
                 {"root", fmt::format("{}", root)},
                 {"part", fmt::format("{} {}", dtype_name(part.dtype()), to_string(shape))}};
  });
  if (rank != root) {
    Tensor own(part);
    exchange_now(transport, {.to = root, .send = bytes_in(own)});
    return {};
  }
  Tensor whole(part.dtype(), shape);
  for (int from = 0; from < transport.size(); ++from) {
    if (from == root) {
      place(part, sharding, root, whole);
      continue;
    }
    shape[2] = sharding.length(from);
    Tensor other(part.dtype(), shape);
    exchange_now(transport, {.from = from, .receive = bytes_in(other)});
    place(other, sharding, from, whole);
  }
  return whole;
}

}  // namespace fovea::distributed
