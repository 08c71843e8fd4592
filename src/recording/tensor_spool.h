// SPDX-License-Identifier: Apache-2.0
//
// A .safetensors file whose tensors arrive in parts. Every part goes to the temporary file as it
// comes, behind space for the header. If each tensor has one part, this file becomes the result,
// and only the header is missing. Otherwise the parts are copied in order to a second file.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fovea/tensor.h"

#include "io/output_file.h"

namespace fovea::recording {

class TensorSpool {
 public:
  /// Throws OutputError if the path is not that of a file that can be written.
  explicit TensorSpool(const std::string& path);

  /// Appends a part of a tensor along dimension `dim`. The other extents and the type must be those
  /// of the first part.
  void append(const std::string& name, const TensorView& part, int dim = 0);
  /// Adds a tensor of bytes, of type U8.
  void add_bytes(const std::string& name, std::string_view bytes);

  bool has(const std::string& name) const { return places_.contains(name); }
  /// Return the type of a tensor, and the shape of all of its parts together.
  DType dtype(const std::string& name) const { return stored(name).dtype; }
  Shape shape(const std::string& name) const { return stored(name).shape; }
  /// Returns whether a tensor has exactly these elements.
  bool holds(const std::string& name, const Tensor& elements) const;

  /// Returns the number of bytes of all tensors.
  std::uint64_t bytes() const { return bytes_; }

  /// Completes the file. `metadata` is that of safetensors_header().
  void finish(std::span<const std::pair<std::string, std::string>> metadata);

 private:
  struct Part {
    std::uint64_t begin = 0;  ///< offset in the temporary file
    std::int64_t length = 0;  ///< along the dimension of the parts
  };
  struct Stored {
    std::string name;
    std::string_view type;  ///< as the header spells it
    DType dtype = DType::kFloat32;
    std::size_t size = 0;  ///< bytes per element
    Shape shape;
    int dim = 0;
    std::vector<Part> parts;

    std::uint64_t bytes() const { return static_cast<std::uint64_t>(element_count(shape)) * size; }
  };

  const Stored& stored(const std::string& name) const { return tensors_[places_.at(name)]; }
  Stored& add(Stored tensor);
  void write(std::span<const std::byte> bytes);
  std::string header(std::span<const std::pair<std::string, std::string>> metadata,
                     std::size_t bytes) const;
  void assemble(std::span<const std::pair<std::string, std::string>> metadata);

  std::string path_;
  std::unique_ptr<OutputFile> file_;  // null when finished
  std::uint64_t end_ = 0;             // of the temporary file
  std::uint64_t bytes_ = 0;
  std::vector<Stored> tensors_;  // in the order of their first parts
  std::unordered_map<std::string, std::size_t> places_;
};

}  // namespace fovea::recording
