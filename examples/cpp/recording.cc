// SPDX-License-Identifier: Apache-2.0
//
// Records the attention of two small layers over a sentence, opens the file, and prints a row of
// weights that is recomputed from it.

#include "fovea/recording.h"

#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include "fovea/attention.h"
#include "fovea/error.h"
#include "fovea/random.h"
#include "fovea/weights.h"

int main() {
  const std::vector<std::string> words = {"Your", "journey", "starts", "with", "one", "step"};
  const auto length = static_cast<std::int64_t>(words.size());
  const std::string name = "fovea_example_" + std::to_string(getpid()) + ".safetensors";
  const std::string path = (std::filesystem::temp_directory_path() / name).string();
  const fovea::AttentionOptions options = {.mask = fovea::causal()};
  fovea::RandomState random(42);
  const auto normal = [&](const fovea::Shape& shape) {
    return fovea::convert(random.randn(shape), fovea::DType::kFloat32);
  };
  try {
    fovea::RecordingWriter writer(path, {.model = "two random layers"});
    writer.add(fovea::TokenList{.name = "text", .texts = words});
    for (int layer = 0; layer < 2; ++layer) {
      fovea::Tensor query = normal({1, 2, length, 16});  // batch, heads, tokens, head_dim
      fovea::Tensor key = normal({1, 1, length, 16});
      const fovea::Tensor value = normal({1, 1, length, 16});
      fovea::Tensor lse(fovea::DType::kFloat32, {1, 2, length});
      // A model would also take the context; the weights need only query, key and lse.
      fovea::attention_forward(query, key, value, options, {.lse = lse});
      writer.add(fovea::RecordedAttention{.name = "layers." + std::to_string(layer),
                                          .layer = layer,
                                          .query_tokens = {"text"},
                                          .key_tokens = {"text"},
                                          .options = options,
                                          .query = std::move(query),
                                          .key = std::move(key),
                                          .lse = std::move(lse)});
    }
    writer.finish();

    const fovea::Recording recording = fovea::Recording::open(path);
    std::printf("%s:", recording.model().c_str());
    for (const fovea::RecordedAttention& each : recording.attentions()) {
      std::printf(" %s", each.name.c_str());
    }
    // The weights of the last word in head 1 of the last layer.
    const fovea::RecordedAttention& layer = recording.find("layers.1");
    const fovea::TokenList& text = *recording.key_tokens(layer);
    fovea::Tensor weights(fovea::DType::kFloat32, {1, length});
    fovea::attention_weights(layer.inputs(),
                             {.head = 1, .first_query = length - 1, .queries = 1, .keys = length},
                             layer.options, weights);
    std::printf("\n\"%s\" attends to\n", text.texts.back().c_str());
    for (std::int64_t key = 0; key < text.size(); ++key) {
      std::printf("  %-8s %.4f\n", text.texts[static_cast<std::size_t>(key)].c_str(),
                  weights.value({0, key}));
    }
    std::filesystem::remove(path);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
