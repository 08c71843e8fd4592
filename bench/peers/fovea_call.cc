// SPDX-License-Identifier: Apache-2.0
//
// C interface to attention_forward, attention_decode and attention_backward for the Python workers
// of bench/peers, whose inputs are NumPy arrays. bench/peers/run compiles this file and links it to
// the library in build/release.

#include <cstdint>
#include <exception>
#include <span>
#include <string>

#include "fovea/attention.h"
#include "fovea/attention_backward.h"
#include "fovea/info.h"
#include "fovea/weights.h"

/// One problem of batch 1 with contiguous arrays [heads, length, dim] of float32 or bfloat16. A
/// null pointer or -1 means that an array or option is absent.
struct fovea_call {
  std::int64_t q_heads, kv_heads, q_len, kv_len, key_dim, value_dim;
  const void* query;
  const void* key;
  const void* value;
  void* context;
  const float* bias;                 // [q_heads, q_len, kv_len]
  const std::int64_t* document_ids;  // [q_len]
  float* lse;                        // [q_heads, q_len]; for gradients and lenses
  const void* grad_context;
  void* grad_query;
  void* grad_key;
  void* grad_value;
  // Lens results: [q_heads, q_len]; for top keys [q_heads, q_len, top]; for the map [q_heads,
  // map_cells, map_cells]; received [q_heads, kv_len].
  float *entropy, *maximum;
  std::int64_t* maximum_key;
  float *mean_distance, *distance_variance, *first_key, *top_weights;
  std::int64_t* top_keys;
  float *map, *received;
  std::int64_t causal, window_left, window_right, key_length, alibi, threads, bfloat16, decode,
      backward, lenses, top, map_cells;
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

fovea::Lenses lenses_of(const fovea_call& call) {
  const fovea::Shape rows{1, call.q_heads, call.q_len};
  const fovea::Shape top{1, call.q_heads, call.q_len, call.top};
  return {.rows = {.entropy = {call.entropy, rows},
                   .maximum = {call.maximum, rows},
                   .maximum_key = {call.maximum_key, rows},
                   .mean_distance = {call.mean_distance, rows},
                   .distance_variance = {call.distance_variance, rows},
                   .first_key = {call.first_key, rows}},
          .top = {.keys = {call.top_keys, top}, .weights = {call.top_weights, top}},
          .map = {.cells = {call.map, {1, call.q_heads, call.map_cells, call.map_cells}}}};
}

fovea::Shape shape_of(std::int64_t heads, std::int64_t length, std::int64_t dim) {
  return {1, heads, length, dim};
}

}  // namespace

extern "C" {

/// Makes the same call `repeats` times: attention_decode or attention_backward if `decode` or
/// `backward` is set, otherwise attention_forward, with lenses followed by attention_received.
/// `backward` reads the context and lse written by an earlier call without it. Returns null, or the
/// message of an error.
const char* fovea_call_run(const fovea_call* call, std::int64_t repeats) {
  static thread_local std::string message;
  try {
    const auto dtype = call->bfloat16 != 0 ? fovea::DType::kBFloat16 : fovea::DType::kFloat32;
    const auto view = [&](const void* data, const fovea::Shape& shape) {
      return fovea::TensorView(data, dtype, shape, fovea::contiguous_strides(shape));
    };
    const auto output = [&](void* data, const fovea::Shape& shape) {
      return fovea::MutableTensorView(data, dtype, shape, fovea::contiguous_strides(shape));
    };
    const fovea::Shape query_shape = shape_of(call->q_heads, call->q_len, call->key_dim);
    const fovea::Shape key_shape = shape_of(call->kv_heads, call->kv_len, call->key_dim);
    const fovea::Shape value_shape = shape_of(call->kv_heads, call->kv_len, call->value_dim);
    const fovea::Shape context_shape = shape_of(call->q_heads, call->q_len, call->value_dim);
    const auto query = view(call->query, query_shape);
    const auto key = view(call->key, key_shape);
    const auto value = view(call->value, value_shape);
    fovea::AttentionOutputs outputs = {.context = output(call->context, context_shape)};
    if (call->lse != nullptr) outputs.lse = {call->lse, {1, call->q_heads, call->q_len}};
    const fovea::AttentionOptions options = options_of(*call);
    const fovea::Lenses lenses = call->lenses != 0 ? lenses_of(*call) : fovea::Lenses{};
    if (call->lenses != 0) outputs.lenses = &lenses;
    for (std::int64_t i = 0; i < repeats; ++i) {
      if (call->backward != 0) {
        fovea::attention_backward({.query = query,
                                   .key = key,
                                   .value = value,
                                   .context = outputs.context,
                                   .lse = outputs.lse,
                                   .grad_context = view(call->grad_context, context_shape)},
                                  options,
                                  {.grad_query = output(call->grad_query, query_shape),
                                   .grad_key = output(call->grad_key, key_shape),
                                   .grad_value = output(call->grad_value, value_shape)});
      } else if (call->decode != 0) {
        fovea::attention_decode(query, key, value, options, outputs);
      } else {
        fovea::attention_forward(query, key, value, options, outputs);
        if (call->lenses != 0) {
          fovea::attention_received({query, key, outputs.lse}, options,
                                    {.sum = {call->received, {1, call->q_heads, call->kv_len}}});
        }
      }
    }
    return nullptr;
  } catch (const std::exception& problem) {
    message = problem.what();
    return message.c_str();
  }
}

/// Returns the library's version, such as "0.1.0".
const char* fovea_call_version() {
  static const std::string version = fovea::build_info().version;
  return version.c_str();
}

/// Returns the compiler that built the library, such as "GCC 12.2.0".
const char* fovea_call_compiler() {
  static const std::string compiler = fovea::build_info().compiler;
  return compiler.c_str();
}
/// Returns the SIMD target that the library chooses here, such as "AVX2".
const char* fovea_call_target() {
  static const std::string target = fovea::build_info().target;
  return target.c_str();
}
}
