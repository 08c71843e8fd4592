// SPDX-License-Identifier: Apache-2.0
//
// Tensors in parts (tensor_spool.h).

#include "recording/tensor_spool.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "fovea/error.h"

#include "files/pieces.h"
#include "files/write.h"

namespace fovea::recording {
namespace {

constexpr std::uint64_t kHeaderSpace = std::uint64_t{128} << 10;
// With this many bytes, unused space is less than one percent of the file.
constexpr std::uint64_t kMinInPlace = 128 * kHeaderSpace;

}  // namespace

TensorSpool::TensorSpool(const std::string& path) : path_(path) {
  // Opening a pipe would wait for its reader.
  std::error_code error;
  if (!std::filesystem::is_other(path, error)) file_ = std::make_unique<OutputFile>(path);
  if (file_ == nullptr || !file_->is_temporary()) {
    throw OutputError(fmt::format("{}: expected the path of a file, got a device or pipe", path));
  }
  const std::string space(kHeaderSpace, ' ');
  file_->write(space);
  end_ = kHeaderSpace;
}

TensorSpool::Stored& TensorSpool::add(Stored tensor) {
  places_.emplace(tensor.name, tensors_.size());
  return tensors_.emplace_back(std::move(tensor));
}

void TensorSpool::write(std::span<const std::byte> bytes) {
  file_->write(bytes);
  end_ += bytes.size();
  bytes_ += bytes.size();
}

void TensorSpool::append(const std::string& name, const TensorView& part, int dim) {
  Shape none = part.shape();
  none[dim] = 0;
  const auto place = places_.find(name);
  Stored& to = place != places_.end() ? tensors_[place->second]
                                      : add({.name = name,
                                             .type = files::safetensors_dtype(part.dtype()),
                                             .dtype = part.dtype(),
                                             .size = dtype_size(part.dtype()),
                                             .shape = none,
                                             .dim = dim,
                                             .parts = {}});
  assert(to.dtype == part.dtype() && to.dim == dim);
  if (part.extent(dim) == 0) return;
  to.parts.push_back({end_, part.extent(dim)});
  to.shape[dim] += part.extent(dim);
  files::for_each_piece(part, [&](std::span<const std::byte> piece) { write(piece); });
}

void TensorSpool::add_bytes(const std::string& name, std::string_view bytes) {
  const auto length = static_cast<std::int64_t>(bytes.size());
  add({.name = name, .type = "U8", .size = 1, .shape = {length}, .parts = {{end_, length}}});
  write(std::as_bytes(std::span(bytes)));
}

bool TensorSpool::holds(const std::string& name, const Tensor& elements) const {
  const Stored& own = stored(name);
  const auto size = static_cast<std::size_t>(own.bytes());
  if (own.dtype != elements.dtype() || own.shape != elements.shape()) return false;
  if (own.parts.size() > 1) return false;
  if (size == 0) return true;
  const FileBytes written = file_->map();
  return std::memcmp(written.bytes.data() + own.parts.front().begin, elements.view().data(),
                     size) == 0;
}

std::string TensorSpool::header(std::span<const std::pair<std::string, std::string>> metadata,
                                std::size_t bytes) const {
  std::vector<files::SafetensorsEntry> entries;
  std::uint64_t at = 0;
  for (const Stored& each : tensors_) {
    entries.push_back({each.name, each.type, each.shape, at, at + each.bytes()});
    at += each.bytes();
  }
  return files::safetensors_header(entries, metadata, bytes);
}

void TensorSpool::finish(std::span<const std::pair<std::string, std::string>> metadata) {
  // The parts are in the order of the tensors if no tensor has a second part.
  const bool in_order = std::all_of(tensors_.begin(), tensors_.end(),
                                    [](const Stored& each) { return each.parts.size() <= 1; });
  if (in_order && bytes_ >= kMinInPlace) {
    const std::string text = header(metadata, kHeaderSpace);
    if (text.size() == kHeaderSpace) {
      file_->write_at(0, text);
      file_->finish();
      file_.reset();
      return;
    }
  }
  assemble(metadata);
  file_.reset();
}

void TensorSpool::assemble(std::span<const std::pair<std::string, std::string>> metadata) {
  // Wider elements first, so that all are aligned, as other writers do.
  std::stable_sort(tensors_.begin(), tensors_.end(),
                   [](const Stored& a, const Stored& b) { return a.size > b.size; });
  OutputFile result(path_);
  result.write(header(metadata, 0));
  const FileBytes written = file_->map();
  for (const Stored& each : tensors_) {
    // A row of the tensor before `dim` has the rows of all parts.
    std::uint64_t rows = 1, bytes = each.size;
    for (int dim = 0; dim < each.shape.rank(); ++dim) {
      const auto extent = static_cast<std::uint64_t>(each.shape[dim]);
      if (dim < each.dim) rows *= extent;
      if (dim > each.dim) bytes *= extent;
    }
    for (std::uint64_t row = 0; row < rows; ++row) {
      for (const Part& part : each.parts) {
        const std::uint64_t length = static_cast<std::uint64_t>(part.length) * bytes;
        result.write(written.bytes.subspan(part.begin + row * length, length));
      }
    }
  }
  result.finish();
}

}  // namespace fovea::recording
