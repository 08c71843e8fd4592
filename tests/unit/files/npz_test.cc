// SPDX-License-Identifier: Apache-2.0
//
// Reading and writing .npz: archives that numpy.savez and numpy.savez_compressed write.

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fovea/files.h"

#include "support/message_of.h"
#include "support/tensor_files.h"

namespace fovea::test {
namespace {

// numpy.savez(file, a=numpy.array([1, 2], 'f4'), é=numpy.array(3)): 64-bit sizes in the local
// headers, and a UTF-8 name.
const std::string kStoredArchive = bytes_of(
    "PK\x03\x04-\x00\x00\x00\x00\x00\x00\x00!\x00\x9a\xca\xab\xe7\xff\xff\xff\xff\xff\xff\xff\xff"
    "\x05\x00\x14\x00"
    "a.npy\x01\x00\x10\x00\x88\x00\x00\x00\x00\x00\x00\x00\x88\x00\x00\x00\x00\x00\x00\x00\x93NUMPY"
    "\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }                        "
    "                                    "
    "\n\x00\x00\x80?\x00\x00\x00@PK\x03\x04-\x00\x00\x08\x00\x00"
    "\x00\x00!\x00\xd9\xb6\xba\xe8\xff\xff\xff\xff\xff\xff\xff\xff\x06\x00\x14\x00\xc3\xa9.npy\x01"
    "\x00\x10\x00\x88\x00\x00\x00\x00\x00\x00\x00\x88\x00\x00\x00\x00\x00\x00\x00\x93NUMPY\x01\x00v"
    "\x00{'descr': '<i8', 'fortran_order': False, 'shape': (), }                                   "
    "                           \n\x03\x00\x00\x00\x00\x00\x00\x00PK\x01\x02-\x03-\x00\x00\x00\x00"
    "\x00\x00\x00!\x00\x9a\xca\xab\xe7\x88\x00\x00\x00\x88\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00"
    "\x00\x00\x00\x00\x00\x80\x01\x00\x00\x00\x00"
    "a.npyPK\x01\x02-\x03-\x00\x00\x08\x00\x00\x00\x00!\x00\xd9\xb6\xba\xe8\x88\x00\x00\x00\x88\x00"
    "\x00\x00\x06\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80\x01\xbf\x00\x00\x00\xc3\xa9.npyPK"
    "\x05\x06\x00\x00\x00\x00\x02\x00\x02\x00g\x00\x00\x00\x7f\x01\x00\x00\x00\x00");

// numpy.savez_compressed(file, a=numpy.array([1, 2], 'f4'))
const std::string kDeflated = bytes_of(
    "PK\x03\x04-\x00\x00\x00\x08\x00\x00\x00!\x00\x9a\xca\xab\xe7\xff\xff\xff\xff\xff\xff\xff\xff"
    "\x05\x00\x14\x00"
    "a.npy\x01\x00\x10\x00\x88\x00\x00\x00\x00\x00\x00\x00L\x00\x00\x00\x00\x00\x00\x00\x9b\xec\x17"
    "\xea\x1b\x10\xc9\xc8P\xc6P\xad\x9e\x92Z\x9c\\\xa4n\xa5\xa0n\x93"
    "f\xa2\xae\xa3\xa0\x9e\x96_TR"
    "\x94\x98\x17\x9f_\x94\x92\n\x12wK\xcc)N\x05\x8a\x17g$\x16\xa4\x02\xf9\x1a"
    "F:\x9a:\n\xb5\n\x14"
    "\x00.\x06\x86\x06{\x06\x06\x06\x07\x00PK\x01\x02-\x03-\x00\x00\x00\x08\x00\x00\x00!\x00\x9a"
    "\xca\xab\xe7L\x00\x00\x00\x88\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80"
    "\x01\x00\x00\x00\x00"
    "a.npyPK\x05\x06\x00\x00\x00\x00\x01\x00\x01\x00"
    "3\x00\x00\x00\x83\x00\x00\x00\x00\x00");

TEST(FilesNpz, ReadsSavezOfNumPy) {
  const TensorFile file = open_bytes(FileFormat::kNpz, kStoredArchive);
  ASSERT_EQ(file.tensors().size(), 2U);
  EXPECT_EQ(file.tensors()[0].name, "a");
  EXPECT_EQ(file.tensors()[0].dtype, DType::kFloat32);
  EXPECT_EQ(file.tensors()[0].stored_type, "<f4");
  EXPECT_EQ(file.tensors()[0].bytes, 8);
  EXPECT_EQ(file.tensors()[1].name, "é");
  EXPECT_TRUE(same_tensor(file.read("a"), Tensor::from<float>({2}, {1, 2})));
  EXPECT_TRUE(same_tensor(file.read("é"), Tensor::from<std::int64_t>({}, {3})));
  EXPECT_EQ(file.find("é"), 1U);
}

TEST(FilesNpz, ReadsSavezCompressedOfNumPy) {
  const TensorFile file = open_bytes(FileFormat::kNpz, kDeflated);
  ASSERT_EQ(file.tensors().size(), 1U);
  EXPECT_EQ(file.tensors()[0].bytes, 8);
  EXPECT_TRUE(same_tensor(file.read(), Tensor::from<float>({2}, {1, 2})));
  EXPECT_TRUE(same_tensor(file.read("a"), Tensor::from<float>({2}, {1, 2})));
}

TEST(FilesNpz, WritesTheBytesOfNumPy) {
  const Folder folder;
  const Tensor a = Tensor::from<float>({2}, {1, 2});
  const Tensor e = Tensor::from<std::int64_t>({}, {3});
  const std::vector<NamedTensor> tensors = {{"a", a}, {"é", e}};
  write_tensors(folder / "x.npz", tensors);
  EXPECT_EQ(read_file(folder / "x.npz"), kStoredArchive);
}

TEST(FilesNpz, EmptyArchive) {
  const std::string bytes = bytes_of("PK\x05\x06") + std::string(18, '\0');
  const TensorFile file = open_bytes(FileFormat::kNpz, bytes);
  EXPECT_TRUE(file.tensors().empty());
  EXPECT_EQ(message_of([&] { file.read(); }), "file: expected a tensor, got a file without any");
}

TEST(FilesNpz, NamesAreNotInterpreted) {
  const Folder folder;
  const Tensor a = Tensor::from<float>({1}, {1});
  const std::vector<NamedTensor> tensors = {
      {"../a", a}, {"/etc/a", a}, {"x:y", a}, {"x:bf16", a}, {"a.npy", a}};
  write_tensors(folder / "x.npz", tensors);
  const TensorFile file = TensorFile::open(folder / "x.npz");
  for (const NamedTensor& tensor : tensors) {
    EXPECT_EQ(read_tensor((folder / "x.npz:") + tensor.name)->value({0}), 1.0) << tensor.name;
  }
}

TEST(FilesNpz, LargeMembersAreStreamed) {
  const Folder folder;
  Tensor large(DType::kInt64, {100, 1001});
  std::int64_t next = 0;
  for (std::int64_t& x : large.span<std::int64_t>()) x = next++ * 7919;
  write_tensor(folder / "x.npz", large, "large");
  EXPECT_TRUE(same_tensor(read_tensor(folder / "x.npz"), large));
}

TEST(FilesNpz, BFloat16MustBeRequested) {
  const Folder folder;
  const Tensor a = convert(Tensor::from<double>({2}, {1, -2}), DType::kBFloat16);
  const Tensor b = Tensor::from<float>({1}, {1});
  const std::vector<NamedTensor> tensors = {{"a", a}, {"b", b}};
  const std::string path = folder / "x.npz";
  write_tensors(path, tensors);
  EXPECT_TRUE(same_tensor(read_tensor(path + ":a:bf16"), a));
  EXPECT_EQ(message_of([&] { read_tensor(path + ":a"); }),
            path +
                ": a: cannot be read: elements are two bytes without a type (<V2), which is how "
                "NumPy writes bfloat16; if that is what they are, say so by :bf16 after the "
                "name");
  EXPECT_EQ(message_of([&] { read_tensor(path + ":b:bf16"); }),
            path +
                ": b: expected elements of two bytes without a type (<V2), because of :bf16, "
                "got <f4");
}

TEST(FilesNpz, UnknownNames) {
  const Folder folder;
  const Tensor a = Tensor::from<float>({1}, {1});
  std::vector<NamedTensor> tensors;
  for (int i = 0; i < 13; ++i) tensors.push_back({"query" + std::to_string(i), a});
  write_tensors(folder / "many.npz", tensors);
  const TensorFile file = TensorFile::open(folder / "many.npz");
  const std::string path = folder / "many.npz";
  EXPECT_EQ(message_of([&] { file.read("qurey3"); }),
            path +
                ": no tensor is called \"qurey3\" (did you mean \"query3\"?); there are: query0, "
                "query1, query2, query3, query4, query5, query6, query7, query8, query9 and 3 "
                "more");
  EXPECT_EQ(message_of([&] { file.read(); }),
            path +
                ": expected the name of one of its 13 tensors, as in FILE:query0; there are: "
                "query0, query1, query2, query3, query4, query5, query6, query7, query8, query9 "
                "and 3 more");
  write_tensor(folder / "one.npz", a, "one");
  EXPECT_EQ(message_of([&] { read_tensor(folder / "one.npz:two"); }),
            (folder / "one.npz") + ": no tensor is called \"two\"; there is: one");
}

}  // namespace
}  // namespace fovea::test
