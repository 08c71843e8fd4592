// SPDX-License-Identifier: Apache-2.0
//
// Passes over the ring (ring_pass.h).

#include "distributed/ring_pass.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "fovea/error.h"

#include "distributed/agreement.h"
#include "distributed/rows.h"

namespace fovea::distributed {
namespace {

constexpr std::chrono::milliseconds kPatience{100};  // between two looks at the stop token

/// Returns contiguous rows of a piece in a message; `like` has their other extents.
TensorView rows_at(const TensorView& like, const KeyPiece& piece, const std::byte* at) {
  Shape shape = like.shape();
  shape[2] = piece.positions.size();
  return {at, like.dtype(), shape};
}

/// Returns the positions from the first to the last chunk of which `seen` is true.
template <class Seen>
PositionRange trimmed(PositionRange range, const Seen& seen) {
  constexpr std::int64_t kChunk = 256;
  while (range.size() > 0 && !seen({range.begin, std::min(range.begin + kChunk, range.end)})) {
    range.begin = std::min(range.begin + kChunk, range.end);
  }
  while (range.size() > 0 && !seen({std::max(range.end - kChunk, range.begin), range.end})) {
    range.end = std::max(range.end - kChunk, range.begin);
  }
  return range;
}

}  // namespace

RingPass::RingPass(Transport& transport, const ShardedInputs& inputs,
                   const AttentionOptions& options, const ProblemShape& shape)
    : transport_(transport), inputs_(inputs), options_(options), shape_(shape) {}

/// Returns whether any query of the range sees any key of the range, as far as Mask::classify
/// tells.
bool RingPass::sees(const PositionRange& queries, const PositionRange& keys) const {
  for (std::int64_t item = 0; item < shape_.batch; ++item) {
    for (std::int64_t head = 0; head < shape_.q_heads; ++head) {
      const ScorePosition first{.batch = item,
                                .head = head,
                                .query = queries.begin,
                                .key = keys.begin,
                                .offset = query_offset(options_, shape_, item)};
      if (options_.mask.classify({first, queries.size(), keys.size()}) != Visibility::kNone) {
        return true;
      }
    }
  }
  return false;
}

/// Returns the queries from the first to the last that sees a key, up to a few at either end.
PositionRange RingPass::queries_that_see(const PositionRange& queries,
                                         const PositionRange& keys) const {
  return trimmed(queries, [&](const PositionRange& some) { return sees(some, keys); });
}

/// Returns the keys from the first to the last that a query sees, up to a few at either end.
PositionRange RingPass::keys_seen_by(const PositionRange& queries,
                                     const PositionRange& keys) const {
  return trimmed(keys, [&](const PositionRange& some) { return sees(queries, some); });
}

RingPlan RingPass::make_plan() {
  std::vector<PositionRange> needed;
  for (const KeyPiece& range : RingPlan::ranges_of(inputs_.keys)) {
    PositionRange all{range.positions.end, range.positions.begin};
    attempt([&] {
      for (const PositionRange& queries : inputs_.queries.ranges(rank())) {
        const PositionRange some = keys_seen_by(queries, range.positions);
        if (some.size() == 0) continue;
        all = {std::min(all.begin, some.begin), std::max(all.end, some.end)};
      }
    });
    needed.push_back(all.size() > 0 ? all : PositionRange());
  }
  RingPlan plan(transport_, inputs_.keys, needed);
  attempt([&] {
    for (int step = 0; step <= plan.steps(); ++step) {
      for (const KeyPiece& piece : plan.circulating(rank_after(-step), step)) {
        for (const PositionRange& queries : inputs_.queries.ranges(rank())) {
          pairs_total_ +=
              pairs(queries_that_see(queries, piece.positions).size(), piece.positions.size());
        }
      }
    }
    report(0);
  });
  return plan;
}

void RingPass::attempt(const std::function<void()>& work) {
  if (failed()) return;
  try {
    work();
  } catch (const CommunicationError&) {
    throw;
  } catch (...) {
    failure_ = std::current_exception();
  }
}

void RingPass::share() const { share_errors(transport_, failure_); }

void RingPass::exchange_during(const Exchange& exchange, const std::function<void()>& work) {
  const bool any = exchange.to >= 0 || exchange.from >= 0;
  if (any) transport_.begin_exchange(exchange);
  attempt(work);
  while (any && !transport_.wait(kPatience)) {
    attempt([&] {
      if (options_.execution.stop.stop_requested()) throw Stopped("stopped as requested");
    });
  }
}

RingPass::PieceTensors RingPass::own_piece(const KeyPiece& piece) const {
  return {rows_from(inputs_.key, piece.first, piece.positions.size()),
          rows_from(inputs_.value, piece.first, piece.positions.size())};
}

RingPass::PieceTensors RingPass::piece_at(const KeyPiece& piece, const std::byte*& at) const {
  const TensorView key = rows_at(inputs_.key, piece, at);
  at += aligned(bytes_of(key));
  const TensorView value = rows_at(inputs_.value, piece, at);
  at += aligned(bytes_of(value));
  return {key, value};
}

std::size_t RingPass::piece_bytes(const std::vector<KeyPiece>& pieces) const {
  std::size_t bytes = 0;
  for (const KeyPiece& piece : pieces) {
    bytes += aligned(bytes_of(rows_at(inputs_.key, piece, nullptr)));
    bytes += aligned(bytes_of(rows_at(inputs_.value, piece, nullptr)));
  }
  return bytes;
}

void RingPass::pack(const std::vector<KeyPiece>& pieces, std::byte* at) const {
  for (const KeyPiece& piece : pieces) {
    const PieceTensors own = own_piece(piece);
    for (const TensorView* tensor : {&own.key, &own.value}) {
      copy_rows(*tensor, {at, tensor->dtype(), tensor->shape()});
      at += aligned(bytes_of(*tensor));
    }
  }
}

std::size_t RingPass::message_bytes(const RingPlan& plan) const {
  std::size_t bytes = 0;
  for (int owner = 0; plan.steps() > 0 && owner < ranks(); ++owner) {
    bytes = std::max(bytes, kHeaderBytes + piece_bytes(plan.circulating(owner, 1)));
  }
  return bytes;
}

void RingPass::circulate(
    const RingPlan& plan, std::span<std::byte> outgoing, std::span<std::byte> incoming,
    const std::function<void(const KeyPiece& piece, const PieceTensors& tensors)>& work) {
  for (int step = 0; step <= plan.steps(); ++step) {
    Exchange exchange;
    if (step < plan.steps()) {
      const auto message = [&](std::span<std::byte> bytes, int owner) {
        return bytes.first(kHeaderBytes + piece_bytes(plan.circulating(owner, step + 1)));
      };
      mark(outgoing[0]);
      exchange = {.to = rank_after(1),
                  .send = message(outgoing, rank_after(-step)),
                  .from = rank_after(-1),
                  .receive = message(incoming, rank_after(-step - 1))};
    }
    exchange_during(exchange, [&] {
      const std::byte* at = outgoing.data() + (step > 0 ? kHeaderBytes : 0);
      for (const KeyPiece& piece : plan.circulating(rank_after(-step), step)) {
        work(piece, step > 0 ? piece_at(piece, at) : own_piece(piece));
      }
    });
    if (step == plan.steps()) break;
    std::swap(outgoing, incoming);
    take_mark(outgoing[0]);
  }
}

void RingPass::for_each_block(
    const KeyPiece& piece, std::int64_t most_queries,
    const std::function<void(const Block&, const AttentionOptions&)>& compute) {
  std::int64_t before = 0;
  for (const PositionRange& range : inputs_.queries.ranges(rank())) {
    const PositionRange seeing = queries_that_see(range, piece.positions);
    const std::int64_t first = before + seeing.begin - range.begin;
    before += range.size();
    for (std::int64_t begin = 0; begin < seeing.size(); begin += most_queries) {
      const PairRange place{seeing.begin + begin, std::min(most_queries, seeing.size() - begin),
                            piece.positions.begin, piece.positions.size()};
      AttentionOptions options = part_of(options_, shape_, place);
      options.score.sinks.clear();
      options.execution.workspace = {};
      const std::int64_t block = pairs(place.queries, place.keys);
      options.execution.progress = [&](std::int64_t done, std::int64_t total) {
        transport_.wait({});
        if (done >= total) return;
        const double share = static_cast<double>(done) / static_cast<double>(total);
        report(pairs_done_ + static_cast<std::int64_t>(share * static_cast<double>(block)));
      };
      compute({place, first + begin}, options);
      pairs_done_ += block;
      report(pairs_done_);
    }
  }
}

}  // namespace fovea::distributed
