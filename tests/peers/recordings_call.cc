// SPDX-License-Identifier: Apache-2.0
//
// C functions that write and read recordings with Fovea, for tests/peers/recordings_suite.py, which
// compares them with safetensors. tests/peers/run compiles it against build/release.

#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "fovea/files.h"
#include "fovea/recording.h"
#include "fovea/weights.h"

namespace {

thread_local std::string message;

/// Returns null, or the message of the exception that `call` threw.
template <class Call>
const char* error_of(Call&& call) {
  try {
    call();
    return nullptr;
  } catch (const std::exception& problem) {
    message = problem.what();
    return message.c_str();
  }
}

}  // namespace

extern "C" {

/// Writes a recording of one attention, "layers.0", from a file with the tensors query, key, value,
/// lse, documents and bias. With `bfloat16`, query, key and value are stored as bfloat16. Returns
/// null, or an error message.
const char* peer_write_recording(const char* from, const char* to, bool bfloat16) {
  return error_of([&] {
    const fovea::TensorFile file = fovea::TensorFile::open(from);
    const fovea::Tensor ids(file.read("documents").view());
    fovea::RecordedAttention attention{.name = "layers.0"};
    attention.query_tokens = attention.key_tokens = {"text"};
    attention.options.mask = fovea::documents(ids) & fovea::causal();
    attention.options.score.softcap = 5.0;
    attention.options.score.bias = file.read("bias");
    attention.query = file.read("query");
    attention.key = file.read("key");
    attention.value = file.read("value");
    attention.lse = file.read("lse");
    fovea::RecordingOptions options{.model = "a model", .source = "a \"text\"\n"};
    if (bfloat16) options.store = fovea::DType::kBFloat16;
    fovea::TokenList tokens{.name = "text"};
    for (std::int64_t i = 0; i < attention.shape().q_len; ++i) {
      tokens.ids.push_back(i * i);
      tokens.texts.push_back("é" + std::to_string(i));
    }
    fovea::RecordingWriter writer(to, options);
    writer.add(attention);
    writer.add(tokens);
    writer.finish();
  });
}

/// Opens a recording and writes the weights [batch, q_heads, q_len, kv_len] of each attention,
/// under its name, to another file. Also copies the texts of the tokens of the first attention's
/// first query and key, separated by a newline, to `texts`. Returns null, or an error message.
const char* peer_read_recording(const char* from, const char* to, char* texts,
                                std::int64_t capacity) {
  return error_of([&] {
    const fovea::Recording recording = fovea::Recording::open(from);
    std::vector<fovea::Tensor> weights;
    std::vector<fovea::NamedTensor> named;
    weights.reserve(recording.attentions().size());
    for (const fovea::RecordedAttention& each : recording.attentions()) {
      const fovea::ProblemShape shape = each.shape();
      fovea::Tensor& all =
          weights.emplace_back(fovea::DType::kFloat32,
                               fovea::Shape{shape.batch, shape.q_heads, shape.q_len, shape.kv_len});
      for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
        for (std::int64_t head = 0; head < shape.q_heads; ++head) {
          fovea::attention_weights(
              each.inputs(),
              {.batch = batch, .head = head, .queries = shape.q_len, .keys = shape.kv_len},
              each.options, all.view()[batch][head]);
        }
      }
      named.push_back({each.name, all});
    }
    const fovea::RecordedAttention& first = recording.attentions().at(0);
    const std::string text = recording.query_tokens(first)->texts.at(0) + "\n" +
                             recording.key_tokens(first)->texts.at(0);
    text.copy(texts, static_cast<std::size_t>(capacity - 1));
    fovea::write_tensors(to, named);
  });
}
}
