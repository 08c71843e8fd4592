// SPDX-License-Identifier: Apache-2.0
//
// .npz files: zip archives of .npy files, read by libzip from the mapped file. A claimed size is
// accepted only if the compressed bytes could expand to it, and memory is allocated only if the
// member's own header agrees.

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

#include <fmt/format.h>
#include <zip.h>

#include "fovea/error.h"

#include "core/fail.h"
#include "files/content.h"
#include "files/npy_header.h"

namespace fovea::files {
namespace {

// Maximum compression ratio of deflate: 1032 to 1.
constexpr std::uint64_t kMaxDeflated = 1032;
constexpr std::string_view kEnding = ".npy";
// Chunk size in bytes, a multiple of every element size.
constexpr std::size_t kChunk = std::size_t{1} << 16;

struct CloseArchive {
  void operator()(zip_t* archive) const { zip_discard(archive); }
};
struct CloseMember {
  void operator()(zip_file_t* member) const { zip_fclose(member); }
};
using Archive = std::unique_ptr<zip_t, CloseArchive>;

std::string text_of(zip_error_t* error) { return zip_error_strerror(error); }

Archive open_archive(std::span<const std::byte> bytes, const std::string& path) {
  zip_error_t error;
  zip_error_init(&error);
  const auto complain = [&]() {
    const std::string text = text_of(&error);
    zip_error_fini(&error);
    fail_at(path, fmt::format("expected an .npz file, which is a zip archive: {}", text));
  };
  zip_source_t* source = zip_source_buffer_create(bytes.data(), bytes.size(), 0, &error);
  if (source == nullptr) complain();
  Archive archive(zip_open_from_source(source, ZIP_RDONLY, &error));
  if (archive == nullptr) {
    zip_source_free(source);
    complain();
  }
  zip_error_fini(&error);
  return archive;
}

/// Sequential reader of a member.
class MemberReader {
 public:
  MemberReader(zip_t* archive, std::uint64_t index, std::uint64_t size, const std::string& place)
      : file_(zip_fopen_index(archive, index, 0)), left_(size), place_(place) {
    if (file_ == nullptr) fail_at(place_, text_of(zip_get_error(archive)));
  }

  std::uint64_t left() const { return left_; }

  void read(std::span<std::byte> bytes) {
    while (!bytes.empty()) {
      const std::int64_t count = zip_fread(file_.get(), bytes.data(), bytes.size());
      if (count < 0) fail_at(place_, text_of(zip_file_get_error(file_.get())));
      if (count == 0) fail_at(place_, fmt::format("expected {} more bytes, got none", left_));
      bytes = bytes.subspan(static_cast<std::size_t>(count));
      left_ -= std::min(left_, static_cast<std::uint64_t>(count));
    }
  }

  NpyHeader header() {
    std::array<std::byte, kNpyPrefix> prefix{};
    const auto first = std::span(prefix).first(
        static_cast<std::size_t>(std::min<std::uint64_t>(kNpyPrefix, left_)));
    read(first);
    const std::size_t end = npy_header_end(first, place_);
    // The buffer is at least as large as the prefix, which has already been read.
    std::vector<std::byte> bytes(std::max(end, kNpyPrefix));
    std::copy(prefix.begin(), prefix.end(), bytes.begin());
    if (bytes.size() > kNpyPrefix + left_) {
      fail_at(place_, fmt::format("expected a header of {} bytes, got only {} of them", end,
                                  first.size() + left_));
    }
    read(std::span(bytes).subspan(kNpyPrefix));
    return parse_npy_header(bytes, place_);
  }

  /// Checks that there are no more bytes. libzip verifies the checksum when it reaches the end.
  void expect_end() {
    std::byte more{};
    const std::int64_t count = zip_fread(file_.get(), &more, 1);
    if (count < 0) fail_at(place_, text_of(zip_file_get_error(file_.get())));
    if (count > 0) fail_at(place_, "expected its end, got more bytes than the archive says");
  }

 private:
  std::unique_ptr<zip_file_t, CloseMember> file_;
  std::uint64_t left_;
  const std::string& place_;
};

/// An array of the archive.
struct ZipEntry {
  std::uint64_t index = 0;
  std::uint64_t size = 0;
  StoredArray array;
};

class NpzContent : public TensorFile::Content {
 public:
  NpzContent(FileBytes file, Archive archive, const std::string& path,
             std::vector<TensorInfo> tensors, std::vector<ZipEntry> entries)
      : Content(path, FileFormat::kNpz, std::move(tensors)),
        file_(std::move(file)),
        archive_(std::move(archive)),
        entries_(std::move(entries)) {}

  TensorRef read(std::size_t at, bool bfloat16) const override {
    const ZipEntry& entry = entries_[at];
    StoredArray array = entry.array;
    if (bfloat16) array.type.kind = StoredType::Kind::kBFloat;
    const std::string place = name_of(at);
    const std::lock_guard lock(mutex_);
    MemberReader member(archive_.get(), entry.index, entry.size, place);
    member.header();
    if (member.left() != static_cast<std::uint64_t>(array.byte_count(place))) {
      fail_at(place, "expected the header that was there before: the file has been changed");
    }
    DecodedArray decoded(array);
    decode_rest(member, array.type, decoded, place);
    member.expect_end();
    return decoded.tensor();
  }

 private:
  static void decode_rest(MemberReader& member, const StoredType& type, DecodedArray& decoded,
                          const std::string& place) {
    const auto stored = static_cast<std::size_t>(type.size);
    const std::size_t size = dtype_size(type.dtype().value());
    std::byte* output = decoded.data();
    std::int64_t done = 0;
    std::vector<std::byte> chunk(kChunk);
    while (member.left() > 0) {
      const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(kChunk, member.left()));
      const std::span<std::byte> bytes = std::span(chunk).first(count);
      member.read(bytes);
      decode(type, bytes, output, place, done);
      output += count / stored * size;
      done += static_cast<std::int64_t>(count / stored);
    }
  }

  FileBytes file_;
  Archive archive_;
  std::vector<ZipEntry> entries_;
  mutable std::mutex mutex_;  // libzip is not thread-safe
};

/// Throws for members that libzip or Fovea cannot decompress, and for impossible sizes.
void check_member(const zip_stat_t& stat, std::uint64_t archive_bytes, const std::string& place) {
  constexpr zip_uint64_t kNeeded = ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD;
  if ((stat.valid & kNeeded) != kNeeded) fail_at(place, "expected a size and a method, got none");
  if ((stat.valid & ZIP_STAT_ENCRYPTION_METHOD) != 0 && stat.encryption_method != ZIP_EM_NONE) {
    fail_at(place, "expected a member that is not encrypted, got one that is");
  }
  if (stat.comp_method != ZIP_CM_STORE && stat.comp_method != ZIP_CM_DEFLATE) {
    fail_at(place, fmt::format("expected a stored or deflated member, got compression method {}",
                               stat.comp_method));
  }
  const std::uint64_t most =
      stat.comp_method == ZIP_CM_STORE ? stat.comp_size : stat.comp_size * kMaxDeflated;
  const bool exact = stat.comp_method == ZIP_CM_DEFLATE || stat.size == stat.comp_size;
  if (stat.comp_size > archive_bytes || stat.size > most || !exact) {
    fail_at(place, fmt::format("expected possible sizes, got {} bytes stored as {} in an archive "
                               "of {}",
                               stat.size, stat.comp_size, archive_bytes));
  }
}

}  // namespace

ContentRef open_npz(FileBytes file, const std::string& path) {
  // libzip treats an empty file as an archive without members.
  if (file.bytes.empty())
    fail_at(path, "expected an .npz file, which is a zip archive, got nothing");
  Archive archive = open_archive(file.bytes, path);
  std::vector<TensorInfo> tensors;
  std::vector<ZipEntry> entries;
  const auto count = static_cast<std::uint64_t>(zip_get_num_entries(archive.get(), 0));
  for (std::uint64_t index = 0; index < count; ++index) {
    zip_stat_t stat;
    if (zip_stat_index(archive.get(), index, 0, &stat) != 0) {
      fail_at(path, text_of(zip_get_error(archive.get())));
    }
    const std::string_view member_name = (stat.valid & ZIP_STAT_NAME) != 0 ? stat.name : "";
    if (member_name.ends_with('/')) continue;  // a folder
    const std::string place = fmt::format("{}: {}", path, shown_name(member_name));
    if (!member_name.ends_with(kEnding)) {
      tensors.push_back(
          {.name = std::string(member_name), .unreadable = "not an .npy file, by its name"});
      entries.emplace_back();
      continue;
    }
    check_member(stat, file.bytes.size(), place);
    MemberReader member(archive.get(), index, stat.size, place);
    const NpyHeader header = member.header();
    const auto wanted = static_cast<std::uint64_t>(header.byte_count);
    if (header.unreadable.empty() && stat.size - header.end != wanted) {
      fail_at(place,
              fmt::format("expected {} bytes after the header, for shape {} of {}, got {}", wanted,
                          to_string(header.array.shape), header.descr, stat.size - header.end));
    }
    const std::string_view name = member_name.substr(0, member_name.size() - kEnding.size());
    tensors.push_back(tensor_info(std::string(name), header));
    entries.push_back({index, stat.size, header.array});
  }
  return std::make_shared<NpzContent>(std::move(file), std::move(archive), path, std::move(tensors),
                                      std::move(entries));
}

}  // namespace fovea::files
