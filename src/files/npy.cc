// SPDX-License-Identifier: Apache-2.0
//
// .npy files: a header and the elements of one array.

#include <utility>

#include <fmt/format.h>

#include "fovea/error.h"

#include "files/content.h"
#include "files/npy_header.h"

namespace fovea::files {
namespace {

class NpyContent : public TensorFile::Content {
 public:
  NpyContent(FileBytes file, const std::string& path, const NpyHeader& header)
      : Content(path, FileFormat::kNpy, {tensor_info("", header)}),
        array_(header.array),
        file_(std::move(file)) {
    file_.bytes = file_.bytes.subspan(header.end);
  }

  TensorRef read(std::size_t /*place*/, bool bfloat16) const override {
    StoredArray array = array_;
    if (bfloat16) array.type.kind = StoredType::Kind::kBFloat;
    return tensor_in(array, file_.bytes, file_.owner, path());
  }

 private:
  StoredArray array_;
  FileBytes file_;
};

}  // namespace

TensorInfo tensor_info(const std::string& name, const NpyHeader& header) {
  TensorInfo info = {.name = name, .stored_type = header.descr, .unreadable = header.unreadable};
  if (!header.unreadable.empty()) return info;
  info.dtype = header.array.type.dtype();
  info.shape = header.array.shape;
  info.bytes = header.byte_count;
  if (!info.dtype) info.unreadable = kUntyped;
  return info;
}

ContentRef open_npy(FileBytes file, const std::string& path) {
  const NpyHeader header = parse_npy_header(file.bytes, path);
  const auto rest = static_cast<std::int64_t>(file.bytes.size() - header.end);
  // The size of arrays of unreadable types is not always known.
  if (header.unreadable.empty() && rest != header.byte_count) {
    throw InvalidArgument(
        fmt::format("{}: expected {} bytes after the header, for shape {} of {}, got {}{}", path,
                    header.byte_count, to_string(header.array.shape), header.descr, rest,
                    rest > header.byte_count ? "; a file of several arrays is not read" : ""));
  }
  return std::make_shared<NpyContent>(std::move(file), path, header);
}

}  // namespace fovea::files
