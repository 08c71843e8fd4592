// SPDX-License-Identifier: Apache-2.0
//
// Writes .safetensors files as the Python library does: tensors are sorted by element size, widest
// first, so that all are aligned, and then by name.

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "files/pieces.h"
#include "files/write.h"
#include "json/json_text.h"

namespace fovea::files {
namespace {

/// Name of a type in headers, and its rank in the file order.
struct TypeOrder {
  std::string_view name;
  int place;
};

TypeOrder order_of(DType dtype) {
  switch (dtype) {
    case DType::kInt64:
      return {"I64", 0};
    case DType::kFloat64:
      return {"F64", 1};
    case DType::kFloat32:
      return {"F32", 2};
    case DType::kBFloat16:
      return {"BF16", 3};
    case DType::kFloat16:
      return {"F16", 4};
    case DType::kBool:
      break;
  }
  return {"BOOL", 5};
}

constexpr std::size_t kLengthSize = 8;

std::string length_text(std::uint64_t length) {
  std::string bytes;
  for (std::size_t i = 0; i < kLengthSize; ++i)
    bytes += static_cast<char>(length >> (8 * i) & 0xff);
  return bytes;
}

}  // namespace

std::string_view safetensors_dtype(DType dtype) { return order_of(dtype).name; }

std::string safetensors_header(std::span<const SafetensorsEntry> entries,
                               std::span<const std::pair<std::string, std::string>> metadata,
                               std::size_t bytes) {
  std::string header = "{";
  if (!metadata.empty()) {
    header += "\"__metadata__\":{";
    for (const auto& [key, text] : metadata) {
      header += fmt::format("{}{}:{}", header.back() == '{' ? "" : ",", json_string(key),
                            json_string(text));
    }
    header += '}';
  }
  for (const SafetensorsEntry& entry : entries) {
    header +=
        fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                    header.size() > 1 ? "," : "", json_string(entry.name), entry.dtype,
                    fmt::join(entry.shape.begin(), entry.shape.end(), ","), entry.begin, entry.end);
  }
  header += "}";
  header.append((8 - header.size() % 8) % 8, ' ');
  if (kLengthSize + header.size() < bytes) header.append(bytes - kLengthSize - header.size(), ' ');
  return length_text(header.size()) + header;
}

void write_safetensors(OutputFile& file, std::span<const NamedTensor> tensors) {
  std::vector<const NamedTensor*> sorted;
  for (const NamedTensor& tensor : tensors) sorted.push_back(&tensor);
  std::sort(sorted.begin(), sorted.end(), [](const NamedTensor* a, const NamedTensor* b) {
    const int place_a = order_of(a->tensor.dtype()).place;
    const int place_b = order_of(b->tensor.dtype()).place;
    return place_a != place_b ? place_a < place_b : a->name < b->name;
  });
  std::vector<SafetensorsEntry> entries;
  std::uint64_t at = 0;
  for (const NamedTensor* named : sorted) {
    const TensorView& tensor = named->tensor;
    const std::uint64_t end = at + byte_count(tensor);
    entries.push_back({named->name, safetensors_dtype(tensor.dtype()), tensor.shape(), at, end});
    at = end;
  }
  file.write(safetensors_header(entries));
  for (const NamedTensor* named : sorted) {
    for_each_piece(named->tensor, [&](std::span<const std::byte> piece) { file.write(piece); });
  }
}

}  // namespace fovea::files
