// SPDX-License-Identifier: Apache-2.0
//
// Fuzzer for recordings (fuzz.h). An input is a whole file, or only the description, the text of
// the metadata key "fovea". A description is put into a file of tensors of zeros.

#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>

#include "fovea/mask.h"
#include "fovea/recording.h"

#include "fuzz.h"

namespace fovea::test {
namespace {

/// A tensor of zeros: of batch 2, 2 query heads, 1 key head, 2 queries, 3 keys and head_dim 2.
struct ZeroTensor {
  std::string_view name;
  std::string_view type;
  std::string_view shape;
  std::size_t bytes;
};

constexpr std::array kTensors = {ZeroTensor{"a.query", "F32", "[2,2,2,2]", 64},
                                 ZeroTensor{"a.key", "F32", "[2,1,3,2]", 48},
                                 ZeroTensor{"a.lse", "F32", "[2,2,2]", 32},
                                 ZeroTensor{"a.value", "F32", "[2,1,3,1]", 24},
                                 ZeroTensor{"b.query", "BF16", "[2,2,0,2]", 0},
                                 ZeroTensor{"b.key", "BF16", "[2,2,3,2]", 48},
                                 ZeroTensor{"b.lse", "F32", "[2,2,0]", 0},
                                 ZeroTensor{"q", "I64", "[2]", 16},
                                 ZeroTensor{"k", "I64", "[2,3]", 48},
                                 ZeroTensor{"d", "BOOL", "[2,3]", 6},
                                 ZeroTensor{"h", "F64", "[2]", 16},
                                 ZeroTensor{"r", "F16", "[8,2]", 32},
                                 ZeroTensor{"tokens.t.text", "U8", "[0]", 0},
                                 ZeroTensor{"tokens.t.offsets", "I64", "[3]", 24},
                                 ZeroTensor{"tokens.t.ids", "I32", "[2]", 8},
                                 ZeroTensor{"tokens.u.text", "U8", "[0]", 0},
                                 ZeroTensor{"tokens.u.offsets", "I64", "[4]", 32}};

/// Returns a JSON string literal.
std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20) {
      char escape[7];
      std::snprintf(escape, sizeof(escape), "\\u%04x", static_cast<unsigned>(c));
      result += escape;
      continue;
    }
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

std::string file_of(std::string_view description) {
  std::string header =
      R"({"__metadata__":{"fovea.recording":"1","fovea":)" + quoted(description) + "}";
  std::size_t end = 0;
  for (const ZeroTensor& each : kTensors) {
    header += ",\"" + std::string(each.name) + "\":{\"dtype\":\"" + std::string(each.type) +
              "\",\"shape\":" + std::string(each.shape) + ",\"data_offsets\":[" +
              std::to_string(end) + "," + std::to_string(end + each.bytes) + "]}";
    end += each.bytes;
  }
  header += "}";
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return bytes + header + std::string(end, '\0');
}

/// Uses everything that a recording has: no option may lead to an invalid access.
void use(const Recording& recording) {
  double sum = 0.0;
  for (const RecordedAttention& each : recording.attentions()) {
    const ProblemShape shape = each.shape();
    for (const TensorRef* tensor : {&each.query, &each.key, &each.lse, &each.value}) {
      if (tensor->defined()) sum += sum_of(*tensor);
    }
    for (std::int64_t batch = 0; batch < std::min<std::int64_t>(shape.batch, 3); ++batch) {
      for (const TokenList* list :
           {recording.query_tokens(each, batch), recording.key_tokens(each, batch)}) {
        if (list != nullptr) sum += static_cast<double>(list->texts.size() + list->ids.size());
      }
      const std::int64_t offset = query_offset(each.options, shape, batch);
      for (std::int64_t query = 0; query < std::min<std::int64_t>(shape.q_len, 9); ++query) {
        const ScorePosition row{.batch = batch, .query = query, .offset = offset};
        const KeyRange range = each.options.mask.key_range(row, shape.kv_len);
        sum += static_cast<double>(range.end - range.begin);
        for (std::int64_t key = 0; key < std::min<std::int64_t>(shape.kv_len, 9); ++key) {
          ScorePosition at = row;
          at.key = key;
          sum += each.options.mask.visible(at) ? 1.0 : 0.0;
        }
      }
    }
    sum += static_cast<double>(each.model_head(shape.q_heads - 1));
  }
  volatile double kept = sum;
  static_cast<void>(kept);
}

}  // namespace
}  // namespace fovea::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fovea;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const bool whole = size > 8 && input[0] != '{' && input[8] == '{';
  const std::string bytes = whole ? std::string(input) : test::file_of(input);
  try {
    test::use(Recording::from_file(TensorFile::from_memory(std::as_bytes(std::span(bytes)),
                                                           FileFormat::kSafetensors, "fuzz")));
  } catch (const InvalidArgument& error) {
    // Every message is one line that starts with the file's name.
    const std::string_view message = error.what();
    if (!message.starts_with("fuzz: ") || message.find('\n') != message.npos) std::abort();
  }
  return 0;
}
