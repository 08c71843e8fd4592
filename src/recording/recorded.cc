// SPDX-License-Identifier: Apache-2.0
//
// The description of a recorded attention (fovea/recording.h).

#include "fovea/recording.h"

namespace fovea {

std::string_view attention_kind_name(AttentionKind kind) {
  switch (kind) {
    case AttentionKind::kEncoder:
      return "encoder";
    case AttentionKind::kDecoder:
      return "decoder";
    case AttentionKind::kCross:
      return "cross";
    case AttentionKind::kSelf:
      break;
  }
  return "self";
}

ProblemShape RecordedAttention::shape() const {
  return {.batch = query->extent(0),
          .q_heads = query->extent(1),
          .kv_heads = key->extent(1),
          .q_len = query->extent(2),
          .kv_len = key->extent(2)};
}

}  // namespace fovea
