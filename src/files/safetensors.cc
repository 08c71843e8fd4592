// SPDX-License-Identifier: Apache-2.0
//
// .safetensors files: the length of the header, the header (a JSON object with the type, shape and
// offsets of each tensor), and the elements. Tensors fill the rest of the file without gaps and
// overlaps. The header can be megabytes long, so it is parsed as a stream of SAX events.

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "fovea/error.h"

#include "files/content.h"
#include "files/elements.h"
#include "text/text_width.h"

namespace fovea::files {
namespace {

using Kind = StoredType::Kind;
using Json = nlohmann::json;

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kMaxJsonHeader = 100'000'000;  // the limit of the Python library
constexpr int kMaxReason = 240;  // maximum width of the JSON library's message

/// Element type and its name in headers. Fovea does not support types without a `kind`.
struct NamedType {
  std::string_view name;
  std::optional<Kind> kind;
  int bits;
};

constexpr std::array kTypes = {
    NamedType{"F64", Kind::kFloat, 64},    NamedType{"F32", Kind::kFloat, 32},
    NamedType{"F16", Kind::kFloat, 16},    NamedType{"BF16", Kind::kBFloat, 16},
    NamedType{"I64", Kind::kSigned, 64},   NamedType{"I32", Kind::kSigned, 32},
    NamedType{"I16", Kind::kSigned, 16},   NamedType{"I8", Kind::kSigned, 8},
    NamedType{"U64", Kind::kUnsigned, 64}, NamedType{"U32", Kind::kUnsigned, 32},
    NamedType{"U16", Kind::kUnsigned, 16}, NamedType{"U8", Kind::kUnsigned, 8},
    NamedType{"BOOL", Kind::kBool, 8}};

/// Header entry of a tensor.
struct JsonEntry {
  std::string name;
  std::string dtype = {};
  std::vector<std::int64_t> shape = {};
  std::vector<std::int64_t> offsets = {};
};

/// SAX handler that reads a header and rejects invalid content as soon as it is parsed.
class HeaderHandler : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderHandler(const std::string& path) : path_(path) {}

  std::vector<JsonEntry> entries;
  std::vector<std::pair<std::string, std::string>> metadata;

  bool null() override { return refuse("null"); }
  bool boolean(bool value) override { return refuse(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return refuse(std::to_string(value)); }
  bool number_float(number_float_t /*value*/, const string_t& text) override {
    return refuse(text);
  }
  bool binary(binary_t& /*value*/) override { return refuse("bytes"); }

  bool number_unsigned(number_unsigned_t value) override {
    constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (level_ != Level::kNumbers || value > kMax) return refuse(std::to_string(value));
    numbers().push_back(static_cast<std::int64_t>(value));
    return true;
  }

  bool string(string_t& value) override {
    if (level_ == Level::kMetadata) {
      metadata.back().second = std::move(value);
      return true;
    }
    if (level_ != Level::kTensor || key_ != kDtype) return refuse(shown(value));
    entries.back().dtype = value;
    return true;
  }

  bool start_object(std::size_t /*size*/) override {
    switch (level_) {
      case Level::kOutside:
        level_ = Level::kTop;
        return true;
      case Level::kTop:
        level_ = name_ == kMetadata ? Level::kMetadata : Level::kTensor;
        keys_.clear();
        seen_ = {};
        if (level_ == Level::kTensor) entries.push_back({.name = name_});
        return true;
      default:
        return refuse("an object");
    }
  }

  bool start_array(std::size_t /*size*/) override {
    const bool wanted = level_ == Level::kTensor && key_ != kDtype;
    if (!wanted) return refuse("an array");
    level_ = Level::kNumbers;
    return true;
  }

  bool key(string_t& value) override {
    if (level_ == Level::kTop) {
      if (!names_.insert(value).second) fail(fmt::format("the name {} occurs twice", shown(value)));
      name_ = value;
    } else if (level_ == Level::kMetadata) {
      if (!keys_.insert(value).second) {
        fail(fmt::format("{}: the key {} occurs twice", kMetadata, shown(value)));
      }
      metadata.emplace_back(value, "");
    } else {
      const auto* found = std::find(kKeys.begin(), kKeys.end(), value);
      if (found == kKeys.end()) {
        fail(fmt::format("{}: expected the keys {}, got {}", place(), fmt::join(kKeys, ", "),
                         shown(value)));
      }
      key_ = static_cast<std::size_t>(found - kKeys.begin());
      if (seen_[key_]) fail(fmt::format("{}: the key \"{}\" occurs twice", place(), value));
      seen_[key_] = true;
    }
    return true;
  }

  bool end_object() override {
    if (level_ == Level::kTensor) {
      for (std::size_t i = 0; i < kKeys.size(); ++i) {
        if (!seen_[i]) {
          fail(fmt::format("{}: expected the key \"{}\", got none", place(), kKeys[i]));
        }
      }
    }
    level_ = level_ == Level::kTop ? Level::kOutside : Level::kTop;
    return true;
  }

  bool end_array() override {
    if (key_ == kOffsets && numbers().size() != 2) {
      fail(fmt::format("{}: data_offsets: expected 2 numbers, got {}", place(), numbers().size()));
    }
    level_ = Level::kTensor;
    return true;
  }

  bool parse_error(std::size_t /*at*/, const std::string& /*token*/,
                   const Json::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 3, column 5: syntax error ..."
    std::string_view what = error.what();
    for (const std::string_view skip : {"] ", "parse error at "}) {
      const std::size_t at = what.find(skip);
      if (at < 50) what.remove_prefix(at + skip.size());
    }
    fail("expected JSON in UTF-8; " + fit(visible(what), kMaxReason));
  }

 private:
  enum class Level { kOutside, kTop, kMetadata, kTensor, kNumbers };
  static constexpr std::string_view kMetadata = "__metadata__";
  static constexpr std::array<std::string_view, 3> kKeys = {"dtype", "shape", "data_offsets"};
  static constexpr std::size_t kDtype = 0;
  static constexpr std::size_t kOffsets = 2;

  static std::string shown(std::string_view text) {
    return fmt::format("\"{}\"", shown_name(text));
  }

  std::string place() const { return shown_name(name_); }

  std::vector<std::int64_t>& numbers() {
    return key_ == kOffsets ? entries.back().offsets : entries.back().shape;
  }

  [[noreturn]] void fail(const std::string& message) const {
    throw InvalidArgument(fmt::format("{}: header: {}", path_, message));
  }

  /// Throws an error that says that `value` is not valid at the current position.
  [[noreturn]] bool refuse(const std::string& value) const {
    switch (level_) {
      case Level::kOutside:
        fail(fmt::format("expected an object, got {}", value));
      case Level::kTop:
        fail(fmt::format("{}: expected an object, got {}", place(), value));
      case Level::kMetadata:
        fail(fmt::format("{}: expected strings, got {}", kMetadata, value));
      case Level::kTensor:
        fail(fmt::format("{}: {}: expected {}, got {}", place(), kKeys[key_],
                         key_ == kDtype ? "a string" : "an array of whole numbers", value));
      case Level::kNumbers:
        break;
    }
    fail(fmt::format("{}: {}: expected whole numbers from 0 to 2^63 - 1, got {}", place(),
                     kKeys[key_], value));
  }

  const std::string& path_;
  Level level_ = Level::kOutside;
  std::string name_;
  std::size_t key_ = 0;
  std::array<bool, 3> seen_ = {};
  std::unordered_set<std::string> names_;
  std::unordered_set<std::string> keys_;  // of the metadata
};

const NamedType* find_type(std::string_view name) {
  const auto* found = std::find_if(kTypes.begin(), kTypes.end(),
                                   [&](const NamedType& type) { return type.name == name; });
  return found == kTypes.end() ? nullptr : found;
}

StoredArray array_of(const JsonEntry& entry, const NamedType& type) {
  const int size = type.bits / 8;
  const bool swapped = size > 1 && std::endian::native == std::endian::big;
  return {.type = {*type.kind, size, swapped}, .shape = Shape(entry.shape)};
}

std::string why_no_tensor(const JsonEntry& entry) {
  if (find_type(entry.dtype) == nullptr) {
    return fmt::format("elements are of the type \"{}\", which Fovea does not have",
                       shown_name(entry.dtype));
  }
  if (entry.shape.size() > kMaxRank) {
    return fmt::format("it has {} dimensions, and Fovea's tensors have at most {}",
                       entry.shape.size(), kMaxRank);
  }
  return "";
}

class SafetensorsContent : public TensorFile::Content {
 public:
  SafetensorsContent(FileBytes data, const std::string& path, std::vector<TensorInfo> tensors,
                     std::vector<JsonEntry> entries,
                     std::vector<std::pair<std::string, std::string>> metadata)
      : Content(path, FileFormat::kSafetensors, std::move(tensors)),
        data_(std::move(data)),
        entries_(std::move(entries)) {
    metadata_ = std::move(metadata);
  }

  TensorRef read(std::size_t at, bool /*bfloat16*/) const override {
    const JsonEntry& entry = entries_[at];
    const auto begin = static_cast<std::size_t>(entry.offsets[0]);
    const auto end = static_cast<std::size_t>(entry.offsets[1]);
    return tensor_in(array_of(entry, *find_type(entry.dtype)),
                     data_.bytes.subspan(begin, end - begin), data_.owner, name_of(at));
  }

 private:
  FileBytes data_;
  std::vector<JsonEntry> entries_;
};

/// Returns the length of the header. Throws if the header would extend beyond the file.
std::size_t header_length(std::span<const std::byte> bytes, const std::string& path) {
  if (bytes.size() < kLengthBytes) {
    throw InvalidArgument(
        fmt::format("{}: expected a .safetensors file, which begins with the length of its header "
                    "in {} bytes, got {} bytes",
                    path, kLengthBytes, bytes.size()));
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    length |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  }
  if (length > kMaxJsonHeader) {
    throw InvalidArgument(fmt::format("{}: expected a header of at most {} bytes, got {}", path,
                                      kMaxJsonHeader, length));
  }
  if (length > bytes.size() - kLengthBytes) {
    throw InvalidArgument(fmt::format("{}: expected a header of {} bytes, got only {} of them",
                                      path, length, bytes.size() - kLengthBytes));
  }
  return static_cast<std::size_t>(length);
}

/// Sorts the entries in file order. Throws unless each tensor begins where the previous one ends.
void check_offsets(std::vector<JsonEntry>& entries, std::size_t data_bytes,
                   const std::string& path) {
  std::stable_sort(entries.begin(), entries.end(),
                   [](const JsonEntry& a, const JsonEntry& b) { return a.offsets < b.offsets; });
  const auto fail = [&](const JsonEntry& entry, const std::string& message) {
    throw InvalidArgument(fmt::format("{}: {}: {}", path, shown_name(entry.name), message));
  };
  std::int64_t end = 0;
  for (const JsonEntry& entry : entries) {
    const std::string got = fmt::format("[{}]", fmt::join(entry.offsets, ", "));
    if (entry.offsets[1] < entry.offsets[0]) {
      fail(entry, fmt::format("data_offsets: expected a beginning and an end, got {}", got));
    }
    if (entry.offsets[0] != end) {
      fail(entry, fmt::format("data_offsets: expected {} as the beginning, where the tensor before "
                              "ends, got {}",
                              end, got));
    }
    end = entry.offsets[1];
    if (static_cast<std::uint64_t>(end) > data_bytes) {
      fail(entry, fmt::format("data_offsets: expected at most {}, where the file ends, got {}",
                              data_bytes, got));
    }
  }
  if (static_cast<std::uint64_t>(end) != data_bytes) {
    throw InvalidArgument(
        fmt::format("{}: expected {} bytes after the header, as its tensors have, got {}", path,
                    end, data_bytes));
  }
}

TensorInfo info_of(const JsonEntry& entry, const std::string& path) {
  const std::int64_t bytes = entry.offsets[1] - entry.offsets[0];
  TensorInfo info = {.name = entry.name,
                     .stored_type = entry.dtype,
                     .bytes = bytes,
                     .unreadable = why_no_tensor(entry)};
  if (entry.shape.size() <= kMaxRank) info.shape = Shape(entry.shape);
  if (!info.unreadable.empty()) return info;
  const StoredArray array = array_of(entry, *find_type(entry.dtype));
  const std::string place = fmt::format("{}: {}", path, shown_name(entry.name));
  const std::int64_t wanted = array.byte_count(place);
  if (wanted != bytes) {
    throw InvalidArgument(fmt::format("{}: expected {} bytes, for shape {} of {}, got {}", place,
                                      wanted, to_string(info.shape), entry.dtype, bytes));
  }
  info.dtype = array.type.dtype();
  return info;
}

}  // namespace

ContentRef open_safetensors(FileBytes file, const std::string& path) {
  const std::size_t length = header_length(file.bytes, path);
  const auto header = file.bytes.subspan(kLengthBytes, length);
  // The format requires the object to start at the first byte, without leading blanks.
  if (header.empty() || header[0] != std::byte{'{'}) {
    throw InvalidArgument(
        fmt::format("{}: header: expected an object, which begins with \"{{\", "
                    "got {}",
                    path, header.empty() ? "nothing" : "something else"));
  }
  // The JSON library takes a zero byte for the end of the header.
  if (const auto zero = std::ranges::find(header, std::byte{0}); zero != header.end()) {
    throw InvalidArgument(fmt::format("{}: header: expected JSON in UTF-8, got a zero as byte {}",
                                      path, zero - header.begin() + 1));
  }
  HeaderHandler handler(path);
  const auto* text = reinterpret_cast<const char*>(header.data());
  Json::sax_parse(text, text + header.size(), &handler);
  std::vector<JsonEntry>& entries = handler.entries;
  FileBytes data = std::move(file);
  data.bytes = data.bytes.subspan(kLengthBytes + length);
  check_offsets(entries, data.bytes.size(), path);
  std::vector<TensorInfo> tensors;
  tensors.reserve(entries.size());
  for (const JsonEntry& entry : entries) tensors.push_back(info_of(entry, path));
  return std::make_shared<SafetensorsContent>(std::move(data), path, std::move(tensors),
                                              std::move(entries), std::move(handler.metadata));
}

}  // namespace fovea::files
