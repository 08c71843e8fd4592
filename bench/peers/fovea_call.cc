// SPDX-License-Identifier: Apache-2.0
//
// Fovea's side of bench/peers: attention_forward and attention_decode behind two C functions, for a
// worker process that has the inputs in NumPy arrays. bench/peers/run compiles it against
// build/release.

#include <array>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fovea/attention.h"
#include "fovea/info.h"

/// One problem of batch 1; contiguous arrays [heads, length, dim] of float32, or of bfloat16. A
/// null pointer or -1 means that the problem has no such thing.
struct fovea_call {
  std::int64_t q_heads, kv_heads, q_len, kv_len, key_dim, value_dim;
  const void* query;
  const void* key;
  const void* value;
  void* context;
  const float* bias;                 // [q_heads, q_len, kv_len]
  const std::int64_t* document_ids;  // [q_len]
  std::int64_t causal, window_left, window_right, key_length, alibi, threads, bfloat16, decode;
  double softcap;
};

namespace {

fovea::AttentionOptions options_of(const fovea_call& call) {
  fovea::AttentionOptions options;
  if (call.causal != 0) options.mask = options.mask & fovea::causal();
  if (call.window_left >= 0 || call.window_right >= 0) {
    options.mask = options.mask & fovea::window(call.window_left, call.window_right);
  }
  if (call.key_length >= 0) options.mask = options.mask & fovea::key_lengths({call.key_length});
  if (call.document_ids != nullptr) {
    const std::span ids(call.document_ids, static_cast<std::size_t>(call.q_len));
    options.mask = options.mask & fovea::documents(fovea::Tensor::from({call.q_len}, ids));
  }
  if (call.bias != nullptr) {
    options.score.bias = fovea::TensorView(call.bias, {call.q_heads, call.q_len, call.kv_len});
  }
  if (call.alibi != 0) options.score.alibi = fovea::Alibi{};
  options.score.softcap = call.softcap;
  options.execution.threads = static_cast<int>(call.threads);
  return options;
}

fovea::Shape shape_of(std::int64_t heads, std::int64_t length, std::int64_t dim) {
  return {1, heads, length, dim};
}

}  // namespace

extern "C" {

/// The same call as often as asked; null, or what went wrong.
const char* fovea_call_run(const fovea_call* call, std::int64_t repeats) {
  static thread_local std::string message;
  try {
    const auto dtype = call->bfloat16 != 0 ? fovea::DType::kBFloat16 : fovea::DType::kFloat32;
    const auto view = [&](const void* data, const fovea::Shape& shape) {
      return fovea::TensorView(data, dtype, shape, fovea::contiguous_strides(shape));
    };
    const auto query = view(call->query, shape_of(call->q_heads, call->q_len, call->key_dim));
    const auto key = view(call->key, shape_of(call->kv_heads, call->kv_len, call->key_dim));
    const auto value = view(call->value, shape_of(call->kv_heads, call->kv_len, call->value_dim));
    const fovea::Shape shape = shape_of(call->q_heads, call->q_len, call->value_dim);
    const fovea::AttentionOutputs outputs = {
        .context = {call->context, dtype, shape, fovea::contiguous_strides(shape)}};
    const fovea::AttentionOptions options = options_of(*call);
    for (std::int64_t i = 0; i < repeats; ++i) {
      if (call->decode != 0) {
        fovea::attention_decode(query, key, value, options, outputs);
      } else {
        fovea::attention_forward(query, key, value, options, outputs);
      }
    }
    return nullptr;
  } catch (const std::exception& problem) {
    message = problem.what();
    return message.c_str();
  }
}

/// "0.1.0"
const char* fovea_call_version() {
  static const std::string version = fovea::build_info().version;
  return version.c_str();
}

/// "GCC 12.2.0": what the library was compiled with.
const char* fovea_call_compiler() {
  static const std::string compiler = fovea::build_info().compiler;
  return compiler.c_str();
}
}
