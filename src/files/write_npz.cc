// SPDX-License-Identifier: Apache-2.0
//
// Writes .npz files, byte for byte as numpy.savez does. Members are stored uncompressed. Local
// headers always have 64-bit sizes; the directory has them only if 31 bits do not suffice. The
// format is simple, so it is written without libzip: each tensor is streamed from its memory to the
// file, whereas libzip would need a source object for each tensor and would write the file itself.
// The checksum precedes the data, so the data is read twice.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <zlib.h>

#include "files/npy_header.h"
#include "files/pieces.h"
#include "files/write.h"

namespace fovea::files {
namespace {

constexpr std::uint64_t kMax16 = std::numeric_limits<std::uint16_t>::max();
constexpr std::uint64_t kMax32 = std::numeric_limits<std::uint32_t>::max();
// Python's zipfile does not use the sign bit of 32-bit sizes and offsets.
constexpr std::uint64_t kMaxPlain = std::numeric_limits<std::int32_t>::max();
constexpr int kZip64Version = 45;
constexpr int kUnix = 3;
constexpr int kFirstDay = 1 << 5 | 1;              // 1 January 1980
constexpr std::uint32_t kOwnerOnly = 0600U << 16;  // permissions
constexpr int kUtf8Flag = 0x800;

/// Builder of a record of little-endian integers.
class Record {
 public:
  explicit Record(std::string_view signature) : bytes_(signature) {}
  Record() = default;

  Record& add16(std::uint64_t value) { return add(value, 2); }
  Record& add32(std::uint64_t value) { return add(value, 4); }
  Record& add64(std::uint64_t value) { return add(value, 8); }
  Record& add(std::string_view text) {
    bytes_ += text;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  Record& add(std::uint64_t value, int count) {
    for (int i = 0; i < count; ++i) bytes_ += static_cast<char>(value >> (8 * i) & 0xff);
    return *this;
  }
  std::string bytes_;
};

struct Member {
  std::string name;
  int flags = 0;
  std::uint32_t checksum = 0;
  std::uint64_t size = 0;
  std::uint64_t offset = 0;
};

bool is_ascii(std::string_view text) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) >= 0x80) return false;
  }
  return true;
}

std::uint32_t checksum_of(std::string_view header, const TensorView& tensor) {
  uLong sum = crc32_z(0, reinterpret_cast<const Bytef*>(header.data()), header.size());
  for_each_piece(tensor, [&](std::span<const std::byte> piece) {
    sum = crc32_z(sum, reinterpret_cast<const Bytef*>(piece.data()), piece.size());
  });
  return static_cast<std::uint32_t>(sum);
}

std::string local_header(const Member& member) {
  Record record("PK\x03\x04");
  record.add16(kZip64Version).add16(static_cast<unsigned>(member.flags)).add16(0);
  record.add16(0).add16(kFirstDay).add32(member.checksum).add32(kMax32).add32(kMax32);
  record.add16(member.name.size()).add16(20).add(member.name);
  record.add16(1).add16(16).add64(member.size).add64(member.size);
  return record.bytes();
}

std::string directory_entry(const Member& member) {
  Record extra;
  std::uint64_t size = member.size;
  std::uint64_t offset = member.offset;
  if (size > kMaxPlain) {
    extra.add64(size).add64(size);
    size = kMax32;
  }
  if (offset > kMaxPlain) {
    extra.add64(offset);
    offset = kMax32;
  }
  const std::size_t extra_size = extra.bytes().size();
  Record record("PK\x01\x02");
  record.add16(kUnix << 8 | kZip64Version).add16(kZip64Version);
  record.add16(static_cast<unsigned>(member.flags)).add16(0).add16(0).add16(kFirstDay);
  record.add32(member.checksum).add32(size).add32(size).add16(member.name.size());
  record.add16(extra_size > 0 ? extra_size + 4 : 0).add16(0).add16(0).add16(0);
  record.add32(kOwnerOnly).add32(offset).add(member.name);
  if (extra_size > 0) record.add16(1).add16(extra_size).add(extra.bytes());
  return record.bytes();
}

std::string end_of_archive(std::uint64_t count, std::uint64_t size, std::uint64_t offset) {
  Record record;
  if (count > kMax16 || offset > kMaxPlain || size > kMaxPlain) {
    record.add("PK\x06\x06").add64(44).add16(kZip64Version).add16(kZip64Version);
    record.add32(0).add32(0).add64(count).add64(count).add64(size).add64(offset);
    record.add("PK\x06\x07").add32(0).add64(offset + size).add32(1);
  }
  record.add("PK\x05\x06").add16(0).add16(0);
  record.add16(std::min(count, kMax16)).add16(std::min(count, kMax16));
  record.add32(std::min(size, kMax32)).add32(std::min(offset, kMax32)).add16(0);
  return record.bytes();
}

}  // namespace

void write_npz(OutputFile& file, std::span<const NamedTensor> tensors) {
  std::vector<Member> members;
  std::uint64_t at = 0;
  for (const NamedTensor& tensor : tensors) {
    const std::string header = npy_header_text(tensor.tensor.dtype(), tensor.tensor.shape());
    const std::string name = tensor.name + ".npy";
    members.push_back({.name = name,
                       .flags = is_ascii(name) ? 0 : kUtf8Flag,
                       .checksum = checksum_of(header, tensor.tensor),
                       .size = header.size() + byte_count(tensor.tensor),
                       .offset = at});
    const std::string local = local_header(members.back());
    file.write(local);
    file.write(header);
    for_each_piece(tensor.tensor, [&](std::span<const std::byte> piece) { file.write(piece); });
    at += local.size() + members.back().size;
  }
  std::string directory;
  for (const Member& member : members) directory += directory_entry(member);
  file.write(directory);
  file.write(end_of_archive(members.size(), directory.size(), at));
}

}  // namespace fovea::files
