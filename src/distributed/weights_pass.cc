// SPDX-License-Identifier: Apache-2.0
//
// Trips of keys (weights_pass.h).

#include "distributed/weights_pass.h"

#include <cstddef>
#include <limits>
#include <optional>
#include <span>

#include "distributed/rows.h"
#include "engine/call/workspace.h"

namespace fovea::distributed {

void WeightsPass::run(const std::function<void(const Part&)>& work) {
  const RingPlan plan = make_plan();
  std::optional<engine::Workspace> workspace;
  std::span<std::byte> outgoing, incoming;
  attempt([&] {
    const std::size_t message = message_bytes(plan);
    workspace.emplace(std::span<std::byte>(), 2 * message, engine::Workspace::User::kCallOfCalls);
    outgoing = {workspace->data(), message};
    incoming = {workspace->data() + message, message};
    if (message > 0) pack(plan.circulating(rank(), 1), outgoing.data() + kHeaderBytes);
  });
  share();  // without memory, a rank cannot take part
  constexpr auto kAll = std::numeric_limits<std::int64_t>::max();
  circulate(plan, outgoing, incoming, [&](const KeyPiece& piece, const PieceTensors& tensors) {
    for_each_block(piece, kAll, [&](const Block& block, const AttentionOptions& options) {
      const std::int64_t queries = block.range.queries;
      const WeightInputs own = {rows_from(inputs_.query, block.first, queries), tensors.key,
                                rows_from(lse, block.first, queries)};
      ProblemShape shape = shape_;
      shape.q_len = queries;
      shape.kv_len = block.range.keys;
      // `memory` is empty, because no outputs are checked.
      const engine::Problem problem{own.query, own.key, own.key, options, {}, shape};
      work({block.range, block.first, own, problem});
    });
  });
  share();
}

}  // namespace fovea::distributed
