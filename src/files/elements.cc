// SPDX-License-Identifier: Apache-2.0
//
// Element conversion (elements.h), in plain loops that compilers vectorise.

#include "files/elements.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "fovea/error.h"

namespace fovea::files {
namespace {

using Kind = StoredType::Kind;

std::uint8_t byte_swapped(std::uint8_t x) { return x; }
std::uint16_t byte_swapped(std::uint16_t x) { return __builtin_bswap16(x); }
std::uint32_t byte_swapped(std::uint32_t x) { return __builtin_bswap32(x); }
std::uint64_t byte_swapped(std::uint64_t x) { return __builtin_bswap64(x); }

/// Loads element i of `input`, which may be unaligned.
template <class T>
T load(std::span<const std::byte> input, std::size_t i, bool swapped) {
  T x;
  std::memcpy(&x, input.data() + i * sizeof(T), sizeof(T));
  return swapped ? byte_swapped(x) : x;
}

template <class T>
void swap_all(std::span<const std::byte> input, std::byte* output) {
  for (std::size_t i = 0; i < input.size() / sizeof(T); ++i) {
    const T x = load<T>(input, i, true);
    std::memcpy(output + i * sizeof(T), &x, sizeof(T));
  }
}

template <class Unsigned, class T>
void widen(std::span<const std::byte> input, bool swapped, std::byte* output) {
  for (std::size_t i = 0; i < input.size() / sizeof(T); ++i) {
    const auto x = static_cast<std::int64_t>(static_cast<T>(load<Unsigned>(input, i, swapped)));
    std::memcpy(output + i * sizeof(x), &x, sizeof(x));
  }
}

void copy_uint64(std::span<const std::byte> input, bool swapped, std::byte* output,
                 const std::string& place, std::int64_t first) {
  for (std::size_t i = 0; i < input.size() / sizeof(std::uint64_t); ++i) {
    const auto x = load<std::uint64_t>(input, i, swapped);
    if (x > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      throw InvalidArgument(
          fmt::format("{}: expected numbers below 2^63, since uint64 is read as int64, got {} as "
                      "element {} in the order of the file",
                      place, x, first + static_cast<std::int64_t>(i)));
    }
    std::memcpy(output + i * sizeof(x), &x, sizeof(x));
  }
}

template <bool kSigned>
void widen(int size, std::span<const std::byte> input, bool swapped, std::byte* output) {
  switch (size) {
    case 1:
      return widen<std::uint8_t, std::conditional_t<kSigned, std::int8_t, std::uint8_t>>(
          input, swapped, output);
    case 2:
      return widen<std::uint16_t, std::conditional_t<kSigned, std::int16_t, std::uint16_t>>(
          input, swapped, output);
    default:
      return widen<std::uint32_t, std::conditional_t<kSigned, std::int32_t, std::uint32_t>>(
          input, swapped, output);
  }
}

/// Returns whether Fovea stores elements of this type with the same bits.
bool same_bits(const StoredType& type) {
  const bool integer = type.kind == Kind::kSigned && type.size == 8;
  return !type.swapped && (type.kind == Kind::kFloat || type.kind == Kind::kBFloat || integer);
}

Shape reversed(const Shape& shape) {
  Shape result;
  for (int dim = shape.rank() - 1; dim >= 0; --dim) result.push_back(shape[dim]);
  return result;
}

TensorView view_of(const StoredArray& array, const void* data) {
  const Strides strides = array.fortran_order ? reversed(contiguous_strides(reversed(array.shape)))
                                              : contiguous_strides(array.shape);
  return {data, array.type.dtype().value(), array.shape, strides};
}

}  // namespace

std::optional<DType> StoredType::dtype() const {
  switch (kind) {
    case Kind::kFloat:
      return size == 2 ? DType::kFloat16 : size == 4 ? DType::kFloat32 : DType::kFloat64;
    case Kind::kBFloat:
      return DType::kBFloat16;
    case Kind::kSigned:
    case Kind::kUnsigned:
      return DType::kInt64;
    case Kind::kBool:
      return DType::kBool;
    case Kind::kNoType:
      break;
  }
  return std::nullopt;
}

std::int64_t StoredArray::byte_count(const std::string& place) const {
  const auto too_large = [&] {
    return InvalidArgument(
        fmt::format("{}: shape {} has more bytes than fit into 63 bits", place, to_string(shape)));
  };
  std::int64_t count = 0;
  try {
    count = element_count(shape);
  } catch (const InvalidArgument&) {
    throw too_large();
  }
  // The type in memory may be wider than the type in the file.
  const auto widest = std::max(static_cast<std::int64_t>(type.size), std::int64_t{8});
  if (count > std::numeric_limits<std::int64_t>::max() / widest) throw too_large();
  return count * type.size;
}

void decode(const StoredType& type, std::span<const std::byte> input, std::byte* output,
            const std::string& place, std::int64_t first) {
  if (input.empty()) return;
  if (same_bits(type)) {
    std::memcpy(output, input.data(), input.size());
  } else if (type.kind == Kind::kBool) {
    std::transform(input.begin(), input.end(), output,
                   [](std::byte b) { return std::byte{b != std::byte{0}}; });
  } else if (type.kind == Kind::kUnsigned && type.size == 8) {
    copy_uint64(input, type.swapped, output, place, first);
  } else if (type.kind == Kind::kUnsigned) {
    widen<false>(type.size, input, type.swapped, output);
  } else if (type.kind == Kind::kSigned && type.size < 8) {
    widen<true>(type.size, input, type.swapped, output);
  } else if (type.size == 2) {
    swap_all<std::uint16_t>(input, output);
  } else if (type.size == 4) {
    swap_all<std::uint32_t>(input, output);
  } else {
    swap_all<std::uint64_t>(input, output);
  }
}

DecodedArray::DecodedArray(const StoredArray& array)
    : array_(array),
      elements_(std::make_shared<Tensor>(
          array.type.dtype().value(), array.fortran_order ? reversed(array.shape) : array.shape)) {}

TensorRef DecodedArray::tensor() const {
  const Tensor& elements = *elements_;
  return {view_of(array_, elements.view().data()), elements_};
}

TensorRef tensor_in(const StoredArray& array, std::span<const std::byte> bytes,
                    std::shared_ptr<const void> owner, const std::string& place) {
  const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
  if (same_bits(array.type) && address % static_cast<std::size_t>(array.type.size) == 0) {
    return {view_of(array, bytes.data()), std::move(owner)};
  }
  DecodedArray decoded(array);
  decode(array.type, bytes, decoded.data(), place);
  return decoded.tensor();
}

}  // namespace fovea::files
