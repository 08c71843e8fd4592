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

std::string length_text(std::uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(length >> (8 * i) & 0xff);
  return bytes;
}

}  // namespace

void write_safetensors(OutputFile& file, std::span<const NamedTensor> tensors) {
  std::vector<const NamedTensor*> sorted;
  for (const NamedTensor& tensor : tensors) sorted.push_back(&tensor);
  std::sort(sorted.begin(), sorted.end(), [](const NamedTensor* a, const NamedTensor* b) {
    const int place_a = order_of(a->tensor.dtype()).place;
    const int place_b = order_of(b->tensor.dtype()).place;
    return place_a != place_b ? place_a < place_b : a->name < b->name;
  });
  std::string header = "{";
  std::uint64_t at = 0;
  for (const NamedTensor* named : sorted) {
    const TensorView& tensor = named->tensor;
    const std::uint64_t end = at + byte_count(tensor);
    header += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                          header.size() > 1 ? "," : "", json_string(named->name),
                          order_of(tensor.dtype()).name,
                          fmt::join(tensor.shape().begin(), tensor.shape().end(), ","), at, end);
    at = end;
  }
  header += "}";
  header.append((8 - header.size() % 8) % 8, ' ');
  file.write(length_text(header.size()));
  file.write(header);
  for (const NamedTensor* named : sorted) {
    for_each_piece(named->tensor, [&](std::span<const std::byte> piece) { file.write(piece); });
  }
}

}  // namespace fovea::files
