// SPDX-License-Identifier: Apache-2.0
//
// Writing and reading back files of every dtype, shape and stride order; and write errors.

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fovea/error.h"
#include "fovea/files.h"
#include "fovea/random.h"

#include "support/message_of.h"
#include "support/tensor_files.h"

namespace fovea::test {
namespace {

constexpr DType kTypes[] = {DType::kFloat32,  DType::kFloat64, DType::kFloat16,
                            DType::kBFloat16, DType::kInt64,   DType::kBool};
const std::vector<Shape> kShapes = {{},        {1},       {7},          {0},
                                    {3, 0, 2}, {2, 3},    {64, 130, 8}, {1, 2, 1, 3, 1, 2},
                                    {5, 1},    {1, 1, 4}, {300, 300}};

Tensor filled(DType dtype, const Shape& shape) {
  RandomState random(42);
  Tensor values(DType::kFloat64, shape);
  for (double& x : values.span<double>()) x = random.randn() * 100.0;
  return convert(values, dtype);
}

/// Returns the spec that reads the file; it contains "bf16" if the format cannot store bfloat16.
std::string spec_of(const std::string& path, DType dtype) {
  const bool untyped = dtype == DType::kBFloat16 && !path.ends_with(".safetensors");
  if (!untyped) return path;
  return path + (path.ends_with(".npy") ? ":bf16" : ":tensor:bf16");
}

TEST(FilesWrite, EveryTypeShapeAndFormatRoundTrips) {
  const Folder folder;
  for (const char* name : {"x.npy", "x.npz", "x.safetensors"}) {
    for (const DType dtype : kTypes) {
      for (const Shape& shape : kShapes) {
        const Tensor tensor = filled(dtype, shape);
        const std::string path = folder / name;
        write_tensor(path, tensor);
        EXPECT_TRUE(same_tensor(read_tensor(spec_of(path, dtype)), tensor))
            << name << dtype_name(dtype) << to_string(shape);
      }
    }
  }
  EXPECT_EQ(folder.count(), 3);
}

TEST(FilesWrite, AnyStrides) {
  const Folder folder;
  const Tensor source = filled(DType::kFloat32, {40, 50, 60});
  const TensorView view = source.view();
  const auto* last = source.span<float>().data() + source.size() - 1;
  const float one = 1.5F;
  const std::vector<TensorView> views = {
      view.transposed(0, 2),
      view.transposed(1, 2),
      view.transposed(0, 1)[3],
      {view.data(), DType::kFloat32, {40, 10}, {3000, 6}},
      {last, DType::kFloat32, {120000}, {-1}},
      {&one, DType::kFloat32, {3, 1000, 100}, {0, 0, 0}},
      view[7],
  };
  for (const char* name : {"x.npy", "x.npz", "x.safetensors"}) {
    for (const TensorView& strided : views) {
      write_tensor(folder / name, strided);
      EXPECT_TRUE(same_tensor(read_tensor(folder / name), Tensor(strided)))
          << name << to_string(strided.shape()) << to_string(strided.strides());
    }
  }
}

TEST(FilesWrite, HeadersMatchNumPy) {
  const Folder folder;
  const auto header = [&](DType dtype, const Shape& shape) {
    write_tensor(folder / "x.npy", Tensor(dtype, shape));
    const std::string bytes = read_file(folder / "x.npy");
    const std::size_t end = bytes.find('\n') + 1;
    EXPECT_EQ(end % 64, 0U);
    EXPECT_EQ(bytes.substr(0, 10), bytes_of("\x93NUMPY\x01\0") + little_endian(end - 10, 2));
    const std::string text = bytes.substr(10, end - 10);
    return text.substr(0, text.find('}') + 1);
  };
  EXPECT_EQ(header(DType::kFloat32, {2, 3}),
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }");
  EXPECT_EQ(header(DType::kBFloat16, {7}),
            "{'descr': '<V2', 'fortran_order': False, 'shape': (7,), }");
  EXPECT_EQ(header(DType::kBool, {}), "{'descr': '|b1', 'fortran_order': False, 'shape': (), }");
  EXPECT_EQ(header(DType::kInt64, {0, 1000000, 3}),
            "{'descr': '<i8', 'fortran_order': False, 'shape': (0, 1000000, 3), }");
}

TEST(FilesWrite, ReplacesExistingFiles) {
  const Folder folder;
  const Tensor first = filled(DType::kFloat32, {1000});
  const Tensor second = filled(DType::kFloat32, {10});
  const std::string path = folder / "x.npy";
  write_tensor(path, first);
  const TensorRef mapped = read_tensor(path);
  write_tensor(path, second);
  // A mapping of the old file stays intact.
  EXPECT_TRUE(same_tensor(mapped, first));
  EXPECT_TRUE(same_tensor(read_tensor(path), second));
  // A file can therefore be rewritten from its own mapped contents.
  write_tensor(path, read_tensor(path)->transposed(0, 0));
  EXPECT_TRUE(same_tensor(read_tensor(path), second));
  EXPECT_EQ(folder.count(), 1);
}

TEST(FilesWrite, RejectedNamesAndTensors) {
  const Folder folder;
  const Tensor a = filled(DType::kFloat32, {2});
  using Tensors = std::vector<NamedTensor>;
  const auto message = [&](const std::string& name, const Tensors& tensors) {
    const std::string path = folder / name;
    const std::string text = message_of([&] { write_tensors(path, tensors); });
    return text.starts_with(path + ": ") ? text.substr(path.size() + 2) : text;
  };
  const std::string ending =
      "expected a name that ends in .npy, .npz or .safetensors, which is the format that is "
      "written";
  EXPECT_EQ(message("x", {{"a", a}}), ending);
  EXPECT_EQ(message("x.npy.gz", {{"a", a}}), ending);
  EXPECT_EQ(message("npy", {{"a", a}}), ending);
  EXPECT_EQ(message("x.npy", {}),
            "expected one tensor, which is what .npy holds, got 0; .npz and .safetensors hold any "
            "number");
  EXPECT_EQ(message("x.npy", {{"a", a}, {"b", a}}),
            "expected one tensor, which is what .npy holds, got 2; .npz and .safetensors hold any "
            "number");
  for (const char* name : {"x.npz", "x.safetensors"}) {
    EXPECT_EQ(message(name, {{"a", a}, {"b", a}, {"a", a}}),
              "expected different names, got \"a\" twice");
    EXPECT_EQ(message(name, {{"", a}}), "expected a name for each tensor, got an empty one");
    EXPECT_EQ(message(name, {{"caf\xe9", a}}),
              "expected a name in UTF-8 without zeros, got \"caf\\xe9\"");
    EXPECT_EQ(message(name, {{bytes_of("a\0b"), a}}),
              "expected a name in UTF-8 without zeros, got \"a\\x00b\"");
    EXPECT_EQ(message(name, {{"a", TensorView()}}),
              "expected a tensor, got an undefined one as \"a\"");
  }
  EXPECT_EQ(message("x.npz", {{std::string(70000, 'a'), a}}),
            "expected names of at most 65531 bytes, got 70000");
  EXPECT_EQ(message("x.safetensors", {{"__metadata__", a}}),
            "expected the name of a tensor, got \"__metadata__\", which means something else");
  EXPECT_EQ(message("x.npy", {{"a", TensorView()}}),
            "expected a tensor, got an undefined one as \"a\"");
  EXPECT_EQ(message("x.npy", {{"a", TensorView(nullptr, DType::kFloat32, {3})}}),
            "expected a tensor, got an undefined one as \"a\"");
  EXPECT_EQ(folder.count(), 0);
}

TEST(FilesWrite, UnwritablePaths) {
  const Folder folder;
  const Tensor a = filled(DType::kFloat32, {2});
  const auto message = [&](const std::string& path) -> std::string {
    try {
      write_tensor(path, a);
    } catch (const OutputError& error) {
      return error.what();
    }
    return "no error";
  };
  const std::string missing = folder / "missing/x.npy";
  EXPECT_EQ(message(missing), missing + ": cannot be written: No such file or directory");
  std::filesystem::create_directory(folder / "x.npy");
  EXPECT_EQ(message(folder / "x.npy"), (folder / "x.npy") + ": cannot be written: Is a directory");
  EXPECT_EQ(folder.count(), 1);
}

TEST(FilesWrite, RemovesTemporaryFiles) {
  const Folder folder;
  const Tensor a = filled(DType::kFloat32, {2});
  remove_temporary_files();  // no temporary file yet
  write_tensor(folder / "x.npy", a);
  remove_temporary_files();  // no temporary file left
  EXPECT_TRUE(same_tensor(read_tensor(folder / "x.npy"), a));
}

}  // namespace
}  // namespace fovea::test
