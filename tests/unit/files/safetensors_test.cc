// SPDX-License-Identifier: Apache-2.0
//
// Reading and writing .safetensors: the exact bytes that its Python library writes, and the tensors
// read from them.

#include <bit>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fovea/files.h"

#include "support/message_of.h"
#include "support/tensor_files.h"

namespace fovea::test {
namespace {

// safetensors.numpy.save of seven arrays, with metadata, written by version 0.8.
const std::string kMixed = bytes_of(
    "\xa8\x01\x00\x00\x00\x00\x00\x00{\"__metadata__\":{\"k\":\"v\"},\"a\":{\"dtype\":\"I64\","
    "\"shape\":[2],\"data_offsets\":[0,16]},\"m\":{\"dtype\":\"F64\",\"shape\":[1],"
    "\"data_offsets\":[16,24]},\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[24,28]},"
    "\"z\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[28,32]},\"h\":{\"dtype\":\"F16\","
    "\"shape\":[1],\"data_offsets\":[32,34]},\"\xc3\xa9\\n\\\"\x7f\":{\"dtype\":\"U16\",\"shape\":["
    "0,2],\"data_offsets\":[34,34]},\"b\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[34,"
    "35]}}      \x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
    "\x00\x00\xf0?\x00\x00@@\x00\x00\x80?\x00<\x01");

// safetensors.numpy.save of {"bf": [1] as ml_dtypes.bfloat16, "h": [1] as float16}
const std::string kHalves = bytes_of(
    "p\x00\x00\x00\x00\x00\x00\x00{\"bf\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[0,2]}"
    ",\"h\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[2,4]}}   \x80?\x00<");

TensorRef read_one(const std::string& bytes) {
  return open_bytes(FileFormat::kSafetensors, bytes).read();
}

TEST(FilesSafetensors, ReadsFilesOfThePythonLibrary) {
  const TensorFile file = open_bytes(FileFormat::kSafetensors, kMixed);
  std::vector<std::string> names;
  for (const TensorInfo& info : file.tensors()) names.push_back(info.name);
  EXPECT_THAT(names, testing::ElementsAre("a", "m", "s", "z", "h", "é\n\"\x7f", "b"));
  EXPECT_TRUE(same_tensor(file.read("a"), Tensor::from<std::int64_t>({2}, {1, 2})));
  EXPECT_TRUE(same_tensor(file.read("m"), Tensor::from<double>({1}, {1})));
  EXPECT_TRUE(same_tensor(file.read("s"), Tensor::from<float>({}, {3})));
  EXPECT_TRUE(same_tensor(file.read("z"), Tensor::from<float>({1}, {1})));
  EXPECT_EQ(file.read("h")->dtype(), DType::kFloat16);
  EXPECT_EQ(file.read("b")->value({0}), 1.0);
  EXPECT_EQ(file.read("é\n\"\x7f")->shape(), Shape({0, 2}));
  EXPECT_EQ(file.tensors()[5].stored_type, "U16");
  EXPECT_EQ(file.tensors()[5].dtype, DType::kInt64);
}

TEST(FilesSafetensors, Metadata) {
  using testing::ElementsAre;
  using testing::IsEmpty;
  using testing::Pair;
  EXPECT_THAT(open_bytes(FileFormat::kSafetensors, kMixed).metadata(), ElementsAre(Pair("k", "v")));
  EXPECT_THAT(open_bytes(FileFormat::kSafetensors, kHalves).metadata(), IsEmpty());
  // In the order of the file, wherever it is in the header, with escapes decoded.
  const std::string several = safetensors_file(
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
      R"("__metadata__":{"z":"","a":"{\"b\": \"é\\n\u00e9\"}","\ud83d\udc31":"0"}})",
      "x");
  const TensorFile file = open_bytes(FileFormat::kSafetensors, several);
  EXPECT_THAT(file.metadata(),
              ElementsAre(Pair("z", ""), Pair("a", "{\"b\": \"é\\né\"}"), Pair("🐱", "0")));
  EXPECT_EQ(file.tensors().size(), 1U);  // metadata is no tensor
  const std::string empty = safetensors_file(R"({"__metadata__":{}})");
  EXPECT_THAT(open_bytes(FileFormat::kSafetensors, empty).metadata(), IsEmpty());
  const std::string array = npy_array("<f4", "(1,)", "1234");
  EXPECT_THAT(open_bytes(FileFormat::kNpy, array).metadata(), IsEmpty());
}

TEST(FilesSafetensors, WritesTheBytesOfThePythonLibrary) {
  const Folder folder;
  const Tensor h = convert(Tensor::from<double>({1}, {1}), DType::kFloat16);
  const Tensor bf = convert(Tensor::from<double>({1}, {1}), DType::kBFloat16);
  const std::vector<NamedTensor> tensors = {{"h", h}, {"bf", bf}};
  write_tensors(folder / "x.safetensors", tensors);
  EXPECT_EQ(read_file(folder / "x.safetensors"), kHalves);
  EXPECT_TRUE(same_tensor(read_tensor(folder / "x.safetensors:bf"), bf));
  write_tensors(folder / "x.safetensors", {});
  EXPECT_EQ(read_file(folder / "x.safetensors"), bytes_of("\x08\0\0\0\0\0\0\0{}      "));
}

TEST(FilesSafetensors, EveryType) {
  const auto check = [](const char* dtype, const std::string& data, const Tensor& expected) {
    const std::string bytes = safetensors_of(dtype, "[2]", data);
    EXPECT_TRUE(same_tensor(read_one(bytes), expected)) << dtype;
  };
  const auto integers = [](std::int64_t a, std::int64_t b) {
    return Tensor::from<std::int64_t>({2}, {a, b});
  };
  check("F64", bytes_of("\0\0\0\0\0\0\xf8?\0\0\0\0\0\0\0\0"), Tensor::from<double>({2}, {1.5, 0}));
  check("F32", bytes_of("\0\0\x80?\0\0\0@"), Tensor::from<float>({2}, {1, 2}));
  check("F16", bytes_of("\0<\0\xc0"), convert(Tensor::from<double>({2}, {1, -2}), DType::kFloat16));
  check("BF16", bytes_of("\x80?\0\xc0"),
        convert(Tensor::from<double>({2}, {1, -2}), DType::kBFloat16));
  check("I64", little_endian(7, 8) + little_endian(~0ULL, 8), integers(7, -1));
  check("I32", little_endian(7, 4) + little_endian(~0ULL, 4), integers(7, -1));
  check("I16", little_endian(7, 2) + little_endian(~0ULL, 2), integers(7, -1));
  check("I8", bytes_of("\x07\xff"), integers(7, -1));
  check("U64", little_endian(7, 8) + little_endian(INT64_MAX, 8), integers(7, INT64_MAX));
  check("U32", little_endian(7, 4) + little_endian(~0ULL, 4), integers(7, 4294967295));
  check("U16", little_endian(7, 2) + little_endian(~0ULL, 2), integers(7, 65535));
  check("U8", bytes_of("\x07\xff"), integers(7, 255));
  check("BOOL", bytes_of("\0\x01"), convert(Tensor::from<double>({2}, {0, 1}), DType::kBool));
}

TEST(FilesSafetensors, AlignedElementsAreNotCopied) {
  if (std::endian::native == std::endian::big) GTEST_SKIP() << "swapped elements are copied";
  const Folder folder;
  const std::string path = folder.write("a.safetensors", kMixed);
  const TensorFile file = TensorFile::open(path);
  for (const char* name : {"a", "m", "s", "z", "h"}) {
    EXPECT_EQ(file.read(name)->data(), file.read(name)->data()) << name;
  }
  const auto address = [&](const char* name) {
    return static_cast<const std::byte*>(file.read(name)->data());
  };
  EXPECT_EQ(address("m") - address("a"), 16);
  // After a header of odd length the floats are unaligned.
  const std::string odd = safetensors_file(
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", bytes_of("\0\0\x80?"));
  for (std::size_t shift = 0; shift < 4; ++shift) {
    const std::string moved = std::string(shift, ' ') + odd;
    const TensorFile shifted = TensorFile::from_memory(
        std::as_bytes(std::span(moved)).subspan(shift), FileFormat::kSafetensors, "file");
    EXPECT_EQ(shifted.read()->value({0}), 1.0);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(shifted.read()->data()) % 4, 0U);
  }
}

TEST(FilesSafetensors, UnsupportedTypes) {
  const std::string bytes =
      safetensors_file(R"({"a":{"dtype":"F8_E4M3","shape":[3],"data_offsets":[0,3]},)"
                       R"("b":{"dtype":"I8","shape":[1],"data_offsets":[3,4]},)"
                       R"("c":{"dtype":"I8","shape":[1,1,1,1,1,1,1],"data_offsets":[4,5]}})",
                       "12345");
  const TensorFile file = open_bytes(FileFormat::kSafetensors, bytes);
  EXPECT_EQ(file.tensors()[0].dtype, std::nullopt);
  EXPECT_EQ(file.tensors()[0].shape, Shape({3}));
  EXPECT_EQ(message_of([&] { file.read("a"); }),
            "file: a: cannot be read: elements are of the type \"F8_E4M3\", which Fovea does not "
            "have");
  EXPECT_EQ(file.read("b")->value({0}), '4');
  EXPECT_EQ(message_of([&] { file.read("c"); }),
            "file: c: cannot be read: it has 7 dimensions, and Fovea's tensors have at most 6");
  EXPECT_EQ(message_of([&] { file.read("b:bf16"); }),
            "file: b: expected elements of two bytes without a type (<V2), because of :bf16, got "
            "I8");
}

}  // namespace
}  // namespace fovea::test
