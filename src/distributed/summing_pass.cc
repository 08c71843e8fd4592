// SPDX-License-Identifier: Apache-2.0
//
// Passes that collect sums of keys (summing_pass.h).

#include "distributed/summing_pass.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "engine/call/workspace.h"

namespace fovea::distributed {

void SummingPass::run(std::size_t more_bytes, const std::function<void(std::byte*)>& use_memory) {
  const RingPlan plan = make_plan();
  std::size_t most_sums = 0, most_pieces = 0;
  for (int owner = 0; owner < ranks(); ++owner) {
    most_sums = std::max(most_sums, sum_bytes(plan.circulating(owner, 0)));
    most_pieces = std::max(most_pieces, piece_bytes(plan.circulating(owner, 1)));
  }
  // In a message, sums end where keys begin, so that neither move when fewer sums are sent on.
  const std::size_t keys_at = kHeaderBytes + most_sums;
  std::span<std::byte> outgoing, incoming, sums, own_sums;
  std::optional<engine::Workspace> workspace;
  attempt([&] {
    const std::size_t message = plan.steps() > 0 ? keys_at + most_pieces : 0;
    const std::size_t own = sum_bytes(plan.circulating(rank(), 0));
    workspace.emplace(std::span<std::byte>(), 2 * message + most_sums + own + more_bytes,
                      engine::Workspace::User::kCallOfCalls);
    std::byte* at = workspace->data();
    const auto take = [&at](std::size_t bytes) {
      at += bytes;
      return std::span(at - bytes, bytes);
    };
    outgoing = take(message);
    incoming = take(message);
    sums = take(most_sums);
    own_sums = take(own);
    use_memory(at);
    std::ranges::fill(sums, std::byte{});  // gaps between tensors are sent as well
    if (message > 0) pack(plan.circulating(rank(), 1), outgoing.data() + keys_at);
  });
  share();  // without memory, a rank cannot take part
  for (int step = 0; step <= plan.steps(); ++step) {
    const int owner = rank_after(-step);
    const std::vector<KeyPiece> pieces = plan.circulating(owner, step);
    Exchange exchange;
    if (plan.steps() > 0) {
      // The sums of the step before, and the keys of the next one.
      const auto message = [&](std::span<std::byte> bytes, int from_owner) {
        const std::size_t before =
            step == 0 ? 0 : sum_bytes(plan.circulating((from_owner + 1) % ranks(), step));
        const std::size_t keys = piece_bytes(plan.circulating(from_owner, step + 1));
        return bytes.subspan(keys_at - before - kHeaderBytes, kHeaderBytes + before + keys);
      };
      const std::span<std::byte> sent = message(outgoing, owner);
      if (step > 0) {
        const std::size_t before = sum_bytes(plan.circulating(rank_after(1 - step), step));
        std::memcpy(sent.data() + kHeaderBytes, sums.data(), before);
      }
      mark(sent[0]);
      exchange = {.to = rank_after(1),
                  .send = sent,
                  .from = rank_after(-1),
                  .receive = message(incoming, rank_after(-step - 1))};
    }
    exchange_during(exchange, [&] {
      const std::byte* at = outgoing.data() + (step > 0 ? keys_at : 0);
      std::byte* to = sums.data();
      for (const KeyPiece& piece : pieces) {
        compute(piece, step > 0 ? piece_at(piece, at) : own_piece(piece), to);
        to += sum_bytes({piece});
      }
    });
    if (plan.steps() > 0) take_mark(exchange.receive[0]);
    if (step > 0) combine(pieces, exchange.receive.data() + kHeaderBytes, sums.data());
    return_sums(plan, step, sums, own_sums);
    std::swap(outgoing, incoming);
  }
  attempt([&] { write(plan.circulating(rank(), 0), own_sums.data()); });
  share();
}

/// Sends the sums of the pieces that no further rank needs to their owner, and receives those of
/// this rank.
void SummingPass::return_sums(const RingPlan& plan, int step, std::span<std::byte> sums,
                              std::span<std::byte> own_sums) {
  const auto finished = [&](std::span<std::byte> all, int owner) {
    const std::size_t begin = sum_bytes(plan.circulating(owner, step + 1));
    return all.subspan(begin, sum_bytes(plan.circulating(owner, step)) - begin);
  };
  const int owner = rank_after(-step);
  if (owner == rank()) {
    std::ranges::copy(finished(sums, owner), finished(own_sums, owner).begin());
    return;
  }
  exchange_during({.to = owner,
                   .send = finished(sums, owner),
                   .from = rank_after(step),
                   .receive = finished(own_sums, rank())},
                  [] {});
}

}  // namespace fovea::distributed
