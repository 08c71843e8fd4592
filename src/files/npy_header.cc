// SPDX-License-Identifier: Apache-2.0
//
// Parser for the Python literals in a header (npy_header.h). It does not recurse: only record types
// are nested, and the parser skips them by counting brackets.

#include "files/npy_header.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fovea/error.h"

#include "text/text_width.h"

namespace fovea::files {
namespace {

using Kind = StoredType::Kind;

// Only headers of records with many fields are longer, and Fovea does not read records.
constexpr std::size_t kMaxNpyHeader = 65536;
constexpr int kMaxQuoted = 60;  // maximum width, in columns, of quoted text in a message
constexpr bool kLittleEndian = std::endian::native == std::endian::little;

std::string quoted(std::string_view text) {
  // Truncated before escaping, because the text may be megabytes long.
  return fmt::format("\"{}\"", fit(visible(text.substr(0, 256)), kMaxQuoted));
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Reads literals from left to right.
class LiteralReader {
 public:
  LiteralReader(std::string_view text, const std::string& place) : text_(text), place_(place) {}

  /// Skips blanks. If the next character is `c`, consumes it and returns true.
  bool take(char c) {
    skip_blanks();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void expect(char c) {
    if (!take(c)) fail(fmt::format("\"{}\"", c));
  }

  std::string string(std::string_view what) {
    skip_blanks();
    const char quote = at_ < text_.size() ? text_[at_] : ' ';
    if (quote != '\'' && quote != '"') fail(what);
    const std::size_t end = text_.find(quote, at_ + 1);
    const std::string_view inside = text_.substr(at_ + 1, end - at_ - 1);
    if (end == std::string_view::npos || inside.find_first_of("\\\n") != std::string_view::npos) {
      fail(what);
    }
    at_ = end + 1;
    return std::string(inside);
  }

  bool boolean() {
    skip_blanks();
    for (const bool value : {true, false}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return value;
      }
    }
    fail("True or False");
  }

  /// Parses a tuple of non-negative integers.
  std::vector<std::int64_t> tuple() {
    std::vector<std::int64_t> numbers;
    if (!take('(')) fail("a tuple of whole numbers");
    while (!take(')')) {
      numbers.push_back(number());
      if (take(',')) continue;
      // In Python, one number in parentheses without a comma is not a tuple.
      if (numbers.size() == 1) fail("\",\"");
      expect(')');
      break;
    }
    return numbers;
  }

  /// Skips a list or tuple with any contents and returns its text.
  std::string brackets() {
    skip_blanks();
    const std::size_t begin = at_;
    std::size_t depth = 0;
    do {
      const char c = at_ < text_.size() ? text_[at_] : '\0';
      if (c == '\'' || c == '"') {
        string("a string");
        continue;
      }
      if (c == '\0') fail("the end of a list");
      if (c == '[' || c == '(') ++depth;
      if (c == ']' || c == ')') --depth;
      ++at_;
    } while (depth > 0);
    return std::string(text_.substr(begin, at_ - begin));
  }

  bool at_bracket() {
    skip_blanks();
    return at_ < text_.size() && (text_[at_] == '[' || text_[at_] == '(');
  }

  void expect_end() {
    skip_blanks();
    if (at_ < text_.size()) fail("the end of the header");
  }

  [[noreturn]] void fail(std::string_view what) const {
    const std::string_view rest = text_.substr(at_);
    throw InvalidArgument(fmt::format("{}: header: expected {} at character {}, got {}", place_,
                                      what, at_ + 1,
                                      rest.empty() ? std::string("its end") : quoted(rest)));
  }

  [[noreturn]] void complain(const std::string& message) const {
    throw InvalidArgument(fmt::format("{}: header: {}", place_, message));
  }

 private:
  void skip_blanks() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }

  std::int64_t number() {
    skip_blanks();
    const std::string_view rest = text_.substr(at_);
    if (rest.empty() || rest[0] < '0' || rest[0] > '9') fail("a whole number");
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (error != std::errc()) fail("a number that fits into 63 bits");
    at_ += static_cast<std::size_t>(end - rest.data());
    // Python 2 wrote long integers with this suffix.
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;
    return value;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  const std::string& place_;
};

/// Values of the header's keys.
struct Literal {
  std::string descr;
  bool record = false;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};

Literal parse_literal(std::string_view text, const std::string& place) {
  LiteralReader reader(text, place);
  Literal literal;
  bool seen[3] = {};
  constexpr std::string_view kKeys[] = {"descr", "fortran_order", "shape"};
  reader.expect('{');
  while (!reader.take('}')) {
    const std::string key = reader.string("a key in quotes");
    const auto* found = std::find(std::begin(kKeys), std::end(kKeys), key);
    if (found == std::end(kKeys)) {
      reader.complain(
          fmt::format("expected the keys {}, got {}", fmt::join(kKeys, ", "), quoted(key)));
    }
    bool& known = seen[found - std::begin(kKeys)];
    if (known) reader.complain(fmt::format("the key \"{}\" occurs twice", key));
    known = true;
    reader.expect(':');
    if (key == "shape") {
      literal.shape = reader.tuple();
    } else if (key == "fortran_order") {
      literal.fortran_order = reader.boolean();
    } else if (reader.at_bracket()) {
      literal.record = true;
      literal.descr = reader.brackets();
    } else {
      literal.descr = reader.string("a type in quotes");
    }
    if (reader.take(',')) continue;
    reader.expect('}');
    break;
  }
  reader.expect_end();
  for (std::size_t i = 0; i < std::size(kKeys); ++i) {
    if (!seen[i]) reader.complain(fmt::format("expected the key \"{}\", got none", kKeys[i]));
  }
  return literal;
}

/// Returns the reason why NumPy types with this letter cannot be read.
std::string foreign_type(char letter) {
  switch (letter) {
    case 'c':
      return "complex numbers";
    case 'O':
      return "Python objects, which only Python can read, by running what the file says";
    case 'S':
    case 'a':
    case 'U':
      return "strings";
    case 'M':
    case 'm':
      return "dates or times";
    case 'V':
      return "bytes without a type, or of one that NumPy does not know";
    default:
      return "";
  }
}

/// Parses `descr`. Returns nothing for types that Fovea does not read.
std::optional<StoredType> parse_descr(std::string_view descr) {
  const char order = descr.empty() ? ' ' : descr[0];
  const bool ordered = order == '<' || order == '>' || order == '|' || order == '=';
  if (ordered) descr.remove_prefix(1);
  if (descr.size() != 2) return std::nullopt;  // a letter and a digit
  const int size = descr[1] - '0';
  // Single-byte types have no byte order; wider types need one. Only V2 may omit its byte order: it
  // is always little-endian, as npy_header_text() writes it.
  const bool has_order = order == '<' || order == '>';
  const bool swapped = size > 1 && order == (kLittleEndian ? '>' : '<');
  const bool wide = size == 2 || size == 4 || size == 8;
  if (descr == "b1") return StoredType{Kind::kBool, 1, false};
  if (descr == "V2" && order != '>') return StoredType{Kind::kNoType, 2, !kLittleEndian};
  if (!(size == 1 || (wide && has_order))) return std::nullopt;
  if (descr[0] == 'f' && size > 1) return StoredType{Kind::kFloat, size, swapped};
  if (descr[0] == 'i') return StoredType{Kind::kSigned, size, swapped};
  if (descr[0] == 'u') return StoredType{Kind::kUnsigned, size, swapped};
  return std::nullopt;
}

std::string why_unreadable(const Literal& literal) {
  if (literal.record) return fmt::format("elements are records, {}", quoted(literal.descr));
  if (!parse_descr(literal.descr)) {
    const std::size_t letter = literal.descr.find_first_not_of("<>|=");
    const std::string kind = letter == std::string::npos ? "" : foreign_type(literal.descr[letter]);
    const std::string type = quoted(literal.descr);
    return kind.empty()
               ? fmt::format("elements are of the type {}, which Fovea does not have", type)
               : fmt::format("elements are {} ({})", kind, type);
  }
  if (literal.shape.size() > kMaxRank) {
    return fmt::format("it has {} dimensions, and Fovea's tensors have at most {}",
                       literal.shape.size(), kMaxRank);
  }
  return "";
}

}  // namespace

std::size_t npy_header_end(std::span<const std::byte> prefix, const std::string& place) {
  const std::string_view text = as_text(prefix);
  if (!text.starts_with(kNpyMagic)) {
    throw InvalidArgument(fmt::format(
        "{}: expected an .npy file, which begins with {}, got {}", place, quoted(kNpyMagic),
        text.empty() ? std::string("nothing") : quoted(text.substr(0, 8))));
  }
  const auto byte = [&](std::size_t i) {
    if (i >= prefix.size()) {
      throw InvalidArgument(fmt::format("{}: expected a header, got only the first {} bytes of one",
                                        place, prefix.size()));
    }
    return std::to_integer<std::size_t>(prefix[i]);
  };
  const std::size_t major = byte(6);
  const std::size_t minor = byte(7);
  if (major < 1 || major > 3 || minor != 0) {
    throw InvalidArgument(fmt::format("{}: expected version 1.0, 2.0 or 3.0 of .npy, got {}.{}",
                                      place, major, minor));
  }
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  std::size_t length = 0;
  for (std::size_t i = 0; i < length_bytes; ++i) length |= byte(8 + i) << (8 * i);
  if (length > kMaxNpyHeader) {
    throw InvalidArgument(fmt::format("{}: expected a header of at most {} bytes, got {}", place,
                                      kMaxNpyHeader, length));
  }
  return 8 + length_bytes + length;
}

std::span<const std::byte> npy_header_bytes(std::span<const std::byte> file,
                                            const std::string& place) {
  const std::size_t end = npy_header_end(file.first(std::min(file.size(), kNpyPrefix)), place);
  if (end > file.size()) {
    throw InvalidArgument(fmt::format("{}: expected a header of {} bytes, got only {} of them",
                                      place, end, file.size()));
  }
  return file.first(end);
}

NpyHeader parse_npy_header(std::span<const std::byte> bytes, const std::string& place) {
  const std::span<const std::byte> header = npy_header_bytes(bytes, place);
  const std::size_t begin = std::to_integer<int>(header[6]) == 1 ? 10 : 12;
  const Literal literal = parse_literal(as_text(header).substr(begin), place);
  NpyHeader result = {.array = {}, .descr = literal.descr, .end = header.size()};
  result.unreadable = why_unreadable(literal);
  if (!result.unreadable.empty()) return result;
  result.array = {.type = parse_descr(literal.descr).value(),
                  .shape = Shape(literal.shape),
                  .fortran_order = literal.fortran_order};
  result.byte_count = result.array.byte_count(place);
  return result;
}

std::string npy_header_text(DType dtype, const Shape& shape) {
  // NumPy writes ml_dtypes.bfloat16 as untyped two-byte elements.
  const std::string_view descr = dtype == DType::kFloat32    ? "<f4"
                                 : dtype == DType::kFloat64  ? "<f8"
                                 : dtype == DType::kFloat16  ? "<f2"
                                 : dtype == DType::kBFloat16 ? "<V2"
                                 : dtype == DType::kInt64    ? "<i8"
                                                             : "|b1";
  std::string text =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", descr,
                  fmt::join(shape.begin(), shape.end(), ", "), shape.rank() == 1 ? "," : "");
  // The padding is the same as NumPy's: spaces that allow the first extent to grow in place, then
  // spaces up to a multiple of 64 bytes.
  constexpr std::size_t kMaxDigits = 21;
  constexpr std::size_t kPrefix = 10;
  if (shape.rank() > 0) text.append(kMaxDigits - std::to_string(shape[0]).size(), ' ');
  text.append(64 - (kPrefix + text.size() + 1) % 64, ' ');
  text += '\n';
  const auto low = static_cast<char>(text.size() & 0xff);
  const auto high = static_cast<char>(text.size() >> 8);
  return std::string(kNpyMagic) + std::string{'\x01', '\0', low, high} + text;
}

}  // namespace fovea::files
