// SPDX-License-Identifier: Apache-2.0
//
// Builds tensor files as byte strings and opens them from memory.

#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>

#include <gtest/gtest.h>
#include <unistd.h>

#include "fovea/files.h"

#include "support/files.h"

namespace fovea::test {

/// Returns the bytes of a number in little-endian order.
inline std::string little_endian(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
  return text;
}

/// Returns a string literal's bytes, including embedded zeros.
template <std::size_t kSize>
std::string bytes_of(const char (&literal)[kSize]) {
  return std::string(literal, kSize - 1);
}

/// Returns an .npy file with the given header, unchanged, followed by the given data.
inline std::string npy_file(std::string_view header, std::string_view data = "", int version = 1) {
  return bytes_of("\x93NUMPY") + static_cast<char>(version) + '\0' +
         little_endian(header.size(), version == 1 ? 2 : 4) + std::string(header) +
         std::string(data);
}

/// Returns an .npy file of an array.
inline std::string npy_array(std::string_view descr, std::string_view shape, std::string_view data,
                             bool fortran_order = false) {
  return npy_file("{'descr': '" + std::string(descr) +
                      "', 'fortran_order': " + (fortran_order ? "True" : "False") +
                      ", 'shape': " + std::string(shape) + ", }\n",
                  data);
}

/// Returns a .safetensors file with the given header and data.
inline std::string safetensors_file(std::string_view header, std::string_view data = "") {
  return little_endian(header.size(), 8) + std::string(header) + std::string(data);
}

/// Returns a .safetensors file of one tensor, named "a".
inline std::string safetensors_of(std::string_view dtype, std::string_view shape,
                                  std::string_view data) {
  return safetensors_file("{\"a\":{\"dtype\":\"" + std::string(dtype) +
                              "\",\"shape\":" + std::string(shape) + ",\"data_offsets\":[0," +
                              std::to_string(data.size()) + "]}}",
                          data);
}

/// Opens a file from memory. Messages use "file" as its name; `bytes` must outlive the result.
inline TensorFile open_bytes(FileFormat format, const std::string& bytes) {
  return TensorFile::from_memory(std::as_bytes(std::span(bytes)), format, "file");
}

/// An empty folder that is removed at the end of the test.
class Folder {
 public:
  Folder() {
    // One test may use several folders, and two runs of the same test may overlap.
    static int number = 0;
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    path_ = std::filesystem::path(testing::TempDir()) /
            (std::string("fovea_") + test->test_suite_name() + "_" + test->name() + "_" +
             std::to_string(getpid()) + "_" + std::to_string(number++));
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  /// Returns the path of a file in the folder.
  std::string operator/(std::string_view name) const { return (path_ / name).string(); }

  /// Writes a file; returns its path.
  std::string write(std::string_view name, std::string_view bytes) const {
    const std::string path = *this / name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

  /// Returns the number of files in the folder.
  std::ptrdiff_t count() const {
    return std::distance(std::filesystem::directory_iterator(path_), {});
  }

 private:
  std::filesystem::path path_;
};

/// Checks that two tensors have the same type and shape and bitwise equal elements.
inline testing::AssertionResult same_tensor(const TensorView& got, const TensorView& expected) {
  if (got.dtype() != expected.dtype() || got.shape() != expected.shape()) {
    return testing::AssertionFailure()
           << dtype_name(got.dtype()) << to_string(got.shape()) << ", expected "
           << dtype_name(expected.dtype()) << to_string(expected.shape());
  }
  const std::size_t size = dtype_size(got.dtype());
  testing::AssertionResult result = testing::AssertionSuccess();
  for_each_index(got.shape(), [&](const Index& index) {
    if (std::memcmp(got.address(index), expected.address(index), size) != 0) {
      result = testing::AssertionFailure() << "at " << to_string(index) << ": " << got.value(index)
                                           << ", expected " << expected.value(index);
    }
  });
  return result;
}

}  // namespace fovea::test
