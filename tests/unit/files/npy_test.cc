// SPDX-License-Identifier: Apache-2.0
//
// Reading .npy files: the exact bytes that NumPy writes, and the tensors read from them.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fovea/files.h"

#include "support/message_of.h"
#include "support/tensor_files.h"

namespace fovea::test {
namespace {

using testing::HasSubstr;

TensorRef read_npy(const std::string& bytes, std::string_view name = "") {
  return open_bytes(FileFormat::kNpy, bytes).read(name);
}

// numpy.save of [[1, 2.5], [-3, inf]] as float32, with NumPy 2.4.
const std::string kFloats = bytes_of(
    "\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }             "
    "                                             \n"
    "\x00\x00\x80?\x00\x00 @\x00\x00@\xc0\x00\x00\x80\x7f");

TEST(FilesNpy, ReadsFilesOfNumPy) {
  const TensorFile file = open_bytes(FileFormat::kNpy, kFloats);
  ASSERT_EQ(file.tensors().size(), 1U);
  const TensorInfo& info = file.tensors()[0];
  EXPECT_EQ(info.name, "");
  EXPECT_EQ(info.dtype, DType::kFloat32);
  EXPECT_EQ(info.stored_type, "<f4");
  EXPECT_EQ(info.shape, Shape({2, 2}));
  EXPECT_EQ(info.bytes, 16);
  EXPECT_EQ(info.unreadable, "");
  EXPECT_EQ(file.format(), FileFormat::kNpy);
  EXPECT_EQ(file.path(), "file");
  const TensorRef tensor = file.read();
  EXPECT_TRUE(same_tensor(
      tensor, Tensor::from<float>({2, 2}, {1, 2.5, -3, std::numeric_limits<float>::infinity()})));
}

TEST(FilesNpy, AlignedElementsAreNotCopied) {
  if (std::endian::native == std::endian::big) GTEST_SKIP() << "swapped elements are copied";
  const Folder folder;
  const std::string path = folder.write("a.npy", kFloats);
  const TensorFile file = TensorFile::open(path);
  const TensorRef once = file.read();
  const TensorRef again = file.read();
  EXPECT_EQ(once->data(), again->data());
  // The header's size is a multiple of 64 bytes, and the mapping starts at a page boundary.
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(once->data()) % 4096, 128U);
}

TEST(FilesNpy, ATensorOutlivesItsFile) {
  const Folder folder;
  const std::string path = folder.write("a.npy", kFloats);
  TensorRef tensor = read_tensor(path);
  std::filesystem::remove(path);
  const TensorRef copy = tensor;
  tensor = {};
  EXPECT_EQ(copy->at<float>({0, 1}), 2.5F);
}

TEST(FilesNpy, UnalignedElementsAreCopied) {
  const std::string bytes =
      npy_file("{'descr':'<f4','fortran_order':False,'shape':(2,)}  ", kFloats.substr(128, 8));
  for (std::size_t shift = 0; shift < 4; ++shift) {
    const std::string moved = std::string(shift, ' ') + bytes;
    const TensorFile file = TensorFile::from_memory(std::as_bytes(std::span(moved)).subspan(shift),
                                                    FileFormat::kNpy, "file");
    const TensorRef tensor = file.read();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor->data()) % 4, 0U);
    EXPECT_EQ(tensor->at<float>({1}), 2.5F);
  }
}

TEST(FilesNpy, EverySupportedType) {
  EXPECT_TRUE(same_tensor(read_npy(npy_array("<f8", "()", bytes_of("\0\0\0\0\0\0\xf8?"))),
                          Tensor::from<double>({}, {1.5})));
  EXPECT_TRUE(same_tensor(read_npy(npy_array("<f2", "(2,)", bytes_of("\0<\0\xc0"))),
                          convert(Tensor::from<double>({2}, {1, -2}), DType::kFloat16)));
  EXPECT_TRUE(
      same_tensor(read_npy(npy_array("<i8", "(2,)", little_endian(1, 8) + little_endian(~0ULL, 8))),
                  Tensor::from<std::int64_t>({2}, {1, -1})));
  const TensorRef flags = read_npy(npy_array("|b1", "(4,)", bytes_of("\1\0\2\xff")));
  EXPECT_TRUE(same_tensor(flags, convert(Tensor::from<double>({4}, {1, 0, 1, 1}), DType::kBool)));
}

TEST(FilesNpy, IntegersOfOtherWidthsBecomeInt64) {
  struct Case {
    const char* descr;
    std::string data;
    std::vector<std::int64_t> expected;
  };
  const std::vector<Case> cases = {
      {"|i1", bytes_of("\x7f\x80"), {127, -128}},
      {"|u1", bytes_of("\x7f\x80"), {127, 128}},
      {"<i2", bytes_of("\x01\x80\xff\x7f"), {-32767, 32767}},
      {">i2", bytes_of("\x80\x01\x7f\xff"), {-32767, 32767}},
      {"<u2", bytes_of("\x01\x80\xff\x7f"), {32769, 32767}},
      {">u2", bytes_of("\x80\x01\x7f\xff"), {32769, 32767}},
      {"<i4", little_endian(0x80000000U, 4) + little_endian(7, 4), {-2147483648, 7}},
      {"<u4", little_endian(0x80000000U, 4) + little_endian(7, 4), {2147483648, 7}},
      {">u4", bytes_of("\x80\0\0\0\0\0\0\x07"), {2147483648, 7}},
      {"<u8", little_endian(INT64_MAX, 8) + little_endian(7, 8), {INT64_MAX, 7}},
      {">u8", bytes_of("\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0\0\0\0\x07"), {INT64_MAX, 7}},
      {">i8", bytes_of("\x80\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff"), {INT64_MIN, -1}}};
  for (const Case& c : cases) {
    const TensorFile file = open_bytes(FileFormat::kNpy, npy_array(c.descr, "(2,)", c.data));
    EXPECT_EQ(file.tensors()[0].dtype, DType::kInt64) << c.descr;
    EXPECT_EQ(file.tensors()[0].bytes, static_cast<std::int64_t>(c.data.size())) << c.descr;
  }
  for (const Case& c : cases) {
    const std::string bytes = npy_array(c.descr, "(2,)", c.data);
    EXPECT_TRUE(same_tensor(read_npy(bytes), Tensor::from<std::int64_t>({2}, c.expected)))
        << c.descr;
  }
}

TEST(FilesNpy, IntegersBeyondInt64) {
  const std::string bytes = npy_array(
      "<u8", "(3,)", little_endian(7, 8) + little_endian(1ULL << 63, 8) + little_endian(~0ULL, 8));
  EXPECT_EQ(message_of([&] { read_npy(bytes); }),
            "file: expected numbers below 2^63, since uint64 is read as int64, got "
            "9223372036854775808 as element 1 in the order of the file");
}

TEST(FilesNpy, BigEndian) {
  EXPECT_TRUE(same_tensor(read_npy(npy_array(">f4", "(2,)", bytes_of("?\x80\0\0@\0\0\0"))),
                          Tensor::from<float>({2}, {1, 2})));
  EXPECT_TRUE(same_tensor(read_npy(npy_array(">f8", "(1,)", bytes_of("?\xf8\0\0\0\0\0\0"))),
                          Tensor::from<double>({1}, {1.5})));
  EXPECT_TRUE(same_tensor(read_npy(npy_array(">f2", "(2,)", bytes_of("<\0\xc0\0"))),
                          convert(Tensor::from<double>({2}, {1, -2}), DType::kFloat16)));
}

TEST(FilesNpy, FortranOrder) {
  // numpy.asfortranarray(numpy.arange(6).reshape(2, 3)), in three dtypes
  const Tensor expected = Tensor::from<double>({2, 3}, {0, 1, 2, 3, 4, 5});
  const std::string bytes = bytes_of("\0\3\1\4\2\5");
  EXPECT_TRUE(same_tensor(read_npy(npy_array("|u1", "(2, 3)", bytes, true)),
                          convert(expected, DType::kInt64)));
  std::string swapped, floats;
  for (const char digit : bytes) {
    const auto half =
        convert(Tensor::from<double>({}, {static_cast<double>(digit)}), DType::kFloat16);
    const std::uint16_t bits = half.at<Float16>({}).bits;
    floats += little_endian(bits, 2);
    swapped += static_cast<char>(bits >> 8);
    swapped += static_cast<char>(bits & 0xff);
  }
  const Tensor halves = convert(expected, DType::kFloat16);
  const std::string file = npy_array("<f2", "(2, 3)", floats, true);
  const TensorRef view = read_npy(file);
  EXPECT_TRUE(same_tensor(view, halves));
  EXPECT_EQ(view->strides(), Strides({1, 2}));
  EXPECT_TRUE(same_tensor(read_npy(npy_array(">f2", "(2, 3)", swapped, true)), halves));
}

TEST(FilesNpy, EmptyAndScalar) {
  const TensorRef empty = read_npy(npy_array("<f4", "(0, 3)", ""));
  EXPECT_EQ(empty->shape(), Shape({0, 3}));
  EXPECT_EQ(empty->size(), 0);
  // If one extent is 0, the others may have any size.
  EXPECT_EQ(read_npy(npy_array("<f4", "(9223372036854775807, 9, 0)", ""))->size(), 0);
  EXPECT_EQ(read_npy(npy_array("|u1", "(0, 9223372036854775807)", "", true))->size(), 0);
  EXPECT_EQ(read_npy(npy_array("|i1", "()", "\x05"))->value({}), 5.0);
  EXPECT_EQ(read_npy(npy_array("|i1", "(1, 1, 1, 1, 1, 1)", "\x05"))->rank(), 6);
}

TEST(FilesNpy, VersionsAndSpellings) {
  const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }\n";
  const std::string data = bytes_of("\0\0\x80?");
  for (const int version : {1, 2, 3}) {
    EXPECT_EQ(read_npy(npy_file(header, data, version))->value({0}), 1.0) << version;
  }
  for (const char* spelling :
       {"{\"shape\":(1,),\"fortran_order\":False,\"descr\":\"<f4\"}",
        "  {  'fortran_order' : False ,\n 'shape' : ( 1 , ) , 'descr' : '<f4' , }  \n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1L,), }",
        "{'descr': '<f4', 'fortran_order': True, 'shape': (1,)}"}) {
    EXPECT_EQ(read_npy(npy_file(spelling, data))->value({0}), 1.0) << spelling;
  }
}

TEST(FilesNpy, BFloat16MustBeRequested) {
  // numpy.save of [1, -2] as ml_dtypes.bfloat16
  const std::string bytes = npy_array("<V2", "(2,)", bytes_of("\x80?\0\xc0"));
  const TensorFile file = open_bytes(FileFormat::kNpy, bytes);
  EXPECT_EQ(file.tensors()[0].dtype, std::nullopt);
  EXPECT_EQ(file.tensors()[0].shape, Shape({2}));
  EXPECT_EQ(file.tensors()[0].bytes, 4);
  EXPECT_THAT(file.tensors()[0].unreadable, HasSubstr("two bytes without a type"));
  EXPECT_EQ(message_of([&] { file.read(); }),
            "file: cannot be read: elements are two bytes without a type (<V2), which is how NumPy "
            "writes bfloat16; if that is what they are, say so by :bf16 after the name");
  const Tensor expected = convert(Tensor::from<double>({2}, {1, -2}), DType::kBFloat16);
  EXPECT_TRUE(same_tensor(file.read("bf16"), expected));
  EXPECT_TRUE(
      same_tensor(read_npy(npy_array("|V2", "(2,)", bytes_of("\x80?\0\xc0")), "bf16"), expected));
  EXPECT_EQ(message_of([&] { read_npy(kFloats, "bf16"); }),
            "file: expected elements of two bytes without a type (<V2), because of :bf16, got <f4");
}

TEST(FilesNpy, RejectsNames) {
  EXPECT_EQ(
      message_of([&] { read_npy(kFloats, "query"); }),
      "file: expected no name, or bf16, since an .npy file has one tensor without a name; got "
      "\"query\"");
}

TEST(FilesNpy, UnsupportedTypes) {
  struct Case {
    const char* descr;
    const char* reason;
  };
  for (const auto& [descr, reason] : std::vector<Case>{
           {"<c8", "elements are complex numbers (\"<c8\")"},
           {"|O",
            "elements are Python objects, which only Python can read, by running what the file "
            "says (\"|O\")"},
           {"|S5", "elements are strings (\"|S5\")"},
           {"<U3", "elements are strings (\"<U3\")"},
           {"<M8[ns]", "elements are dates or times (\"<M8[ns]\")"},
           {"<m8[s]", "elements are dates or times (\"<m8[s]\")"},
           {"|V1",
            "elements are bytes without a type, or of one that NumPy does not know "
            "(\"|V1\")"},
           {">V2",
            "elements are bytes without a type, or of one that NumPy does not know "
            "(\">V2\")"},
           {"<f16", "elements are of the type \"<f16\", which Fovea does not have"},
           {"<f1", "elements are of the type \"<f1\", which Fovea does not have"},
           {"<i3", "elements are of the type \"<i3\", which Fovea does not have"},
           {"f4", "elements are of the type \"f4\", which Fovea does not have"},
           {"|f4", "elements are of the type \"|f4\", which Fovea does not have"},
           {"", "elements are of the type \"\", which Fovea does not have"},
           {"<", "elements are of the type \"<\", which Fovea does not have"}}) {
    const std::string bytes = npy_array(descr, "(2,)", "whatever");
    const TensorFile file = open_bytes(FileFormat::kNpy, bytes);
    EXPECT_EQ(file.tensors()[0].unreadable, reason);
    EXPECT_EQ(file.tensors()[0].stored_type, descr);
    EXPECT_EQ(message_of([&] { file.read(); }), "file: cannot be read: " + std::string(reason));
  }
  const std::string records = npy_file(
      "{'descr': [('a', '<f4'), ('b]', '<i8', (2, 3))], 'fortran_order': False, 'shape': (2,), }");
  EXPECT_EQ(
      message_of([&] { read_npy(records); }),
      "file: cannot be read: elements are records, \"[('a', '<f4'), ('b]', '<i8', (2, 3))]\"");
  EXPECT_EQ(message_of([&] { read_npy(npy_array("<f4", "(1, 1, 1, 1, 1, 1, 1)", "four")); }),
            "file: cannot be read: it has 7 dimensions, and Fovea's tensors have at most 6");
}

}  // namespace
}  // namespace fovea::test
