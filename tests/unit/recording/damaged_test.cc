// SPDX-License-Identifier: Apache-2.0
//
// Recordings whose bytes are missing or changed, and recordings of many attentions: no crash, and
// bounded time.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "fovea/recording.h"

#include "support/recording_file.h"
#include "support/tensor_files.h"

namespace fovea::test {
namespace {

using nlohmann::ordered_json;

TEST(RecordingDamaged, CutShort) {
  const std::string bytes = recording_bytes(small_recording());
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    const std::string message = complaint_about(bytes.substr(0, length));
    EXPECT_THAT(message, testing::StartsWith("file: ")) << length;
    EXPECT_THAT(message, testing::HasSubstr("expected")) << length;
  }
}

TEST(RecordingDamaged, LyingHeaders) {
  const auto header = [](std::string_view from, std::string_view to) {
    std::string bytes = recording_bytes(small_recording());
    const std::size_t at = bytes.find(from);
    bytes.replace(at, from.size(), to);
    return complaint_about(bytes);
  };
  EXPECT_EQ(header("\"shape\":[2,2,2,2]", "\"shape\":[2,2,2,3]"),
            "file: layers.0.query: expected 96 bytes, for shape [2, 2, 2, 3] of F32, got 64");
  EXPECT_EQ(header("\"shape\":[2,2],\"data", "\"shape\":[9,2],\"data"),
            "file: layers.0.documents: expected 144 bytes, for shape [9, 2] of I64, got 32");
}

/// Every change of a byte of the file is read or refused; the sanitizers watch.
TEST(RecordingDamaged, EveryByteChanged) {
  RecordingParts parts = small_recording();
  parts.options() = ordered_json::parse(
      R"({"score": {"sinks": "layers.0.sinks", "relative": {"table": "layers.0.relative"}},
          "mask": {"documents": {"query": "layers.0.documents", "key": "layers.0.documents.2"},
                   "any": [{"window": [1, 0]}, {"key_lengths": "layers.0.key_lengths"}]}})");
  std::string bytes = recording_bytes(parts);
  ASSERT_EQ(complaint_about(bytes), "no error");
  std::int64_t refused = 0;
  for (char& byte : bytes) {
    const char old = byte;
    for (const int change : {0x01, 0x02, 0x10, 0x80}) {
      byte = static_cast<char>(old ^ change);
      const std::string message = complaint_about(bytes);
      if (message == "no error") continue;
      ++refused;
      EXPECT_THAT(message, testing::StartsWith("file: "));
    }
    byte = old;
  }
  EXPECT_GT(refused, 1000);
}

/// Returns a recording whose attentions share a tensor of options and a token list.
std::string recording_of(int attentions) {
  std::string content = R"({"tokens": [{"name": "t"}], "attentions": [)";
  std::string header, data = std::string(16, '\0') + "xx";
  const auto add = [&](const std::string& name, const char* type, const char* shape,
                       std::size_t bytes) {
    const std::size_t begin = data.size();
    data.append(bytes, '\0');
    header += fmt::format(R"(,"{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", name, type,
                          shape, begin, data.size());
  };
  for (int i = 0; i < attentions; ++i) {
    content +=
        fmt::format(R"({}{{"name": "{}", "layer": {}, "query_tokens": "t", "key_tokens": "t",)"
                    R"("options": {{"mask": {{"causal": true, "documents": "d"}}}}}})",
                    i > 0 ? "," : "", i, i);
    for (const char* what : {"query", "key"}) {
      add(fmt::format("{}.{}", i, what), "F32", "[1,1,2,1]", 8);
    }
    add(fmt::format("{}.lse", i), "F32", "[1,1,2]", 8);
  }
  content += "]}";
  data += std::string(8, '\0') + little_endian(1, 8) + little_endian(2, 8);
  const std::size_t end = data.size();
  const std::string text =
      R"({"__metadata__":{"fovea.recording":"1","fovea":)" + ordered_json(content).dump() +
      fmt::format(R"(}},"d":{{"dtype":"I64","shape":[2],"data_offsets":[0,16]}},)"
                  R"("tokens.t.text":{{"dtype":"U8","shape":[2],"data_offsets":[16,18]}})") +
      header +
      fmt::format(R"(,"tokens.t.offsets":{{"dtype":"I64","shape":[3],"data_offsets":[{},{}]}}}})",
                  end - 24, end);
  return safetensors_file(text, data);
}

/// Lookups do not become slower with the number of attentions: eight times as many take about eight
/// times as long on any machine, and much longer if each is compared with all others.
TEST(RecordingSize, ManyAttentionsTakeProportionateTime) {
  // The time of this process alone.
  const auto seconds_of = [](int attentions) {
    const std::string bytes = recording_of(attentions);
    const std::clock_t begin = std::clock();
    const Recording recording = open_recording(bytes);
    const std::clock_t end = std::clock();
    EXPECT_EQ(recording.attentions().size(), static_cast<std::size_t>(attentions));
    EXPECT_EQ(recording.query_tokens(recording.attentions().back())->size(), 2);
    return static_cast<double>(end - begin) / CLOCKS_PER_SEC;
  };
#ifdef FOVEA_SANITIZED
  constexpr int kMany = 10'000;
#else
  constexpr int kMany = 40'000;
#endif
  // Another process may slow down one of the runs.
  const auto least_of = [&](int attentions) {
    return std::min(seconds_of(attentions), seconds_of(attentions));
  };
  EXPECT_LT(least_of(kMany), 14.0 * least_of(kMany / 8));
}

}  // namespace
}  // namespace fovea::test
