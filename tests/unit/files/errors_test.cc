// SPDX-License-Identifier: Apache-2.0
//
// Malformed files: the message of each, files truncated at every byte, and files with any one byte
// changed. The messages are part of the interface; change them only to improve them.

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zipconf.h>

#include "fovea/error.h"
#include "fovea/files.h"

#include "support/message_of.h"
#include "support/tensor_files.h"

namespace fovea::test {
namespace {

// The message for an archive without its last byte. Newer versions of libzip give the reason.
#if LIBZIP_VERSION_MAJOR == 1 && LIBZIP_VERSION_MINOR < 11
constexpr const char* kCutShort =
    "expected an .npz file, which is a zip archive: Not a zip archive";
#else
constexpr const char* kCutShort =
    "expected an .npz file, which is a zip archive: Zip archive inconsistent: wrong EOCD length";
#endif

struct Malformed {
  std::string bytes;
  std::string message;  // after "file: "
};

/// Opens a file, reads all its tensors, and returns the error message, or "no error".
std::string complaint(FileFormat format, const std::string& bytes) {
  const std::string message = message_of([&] {
    const TensorFile file = open_bytes(format, bytes);
    for (const TensorInfo& info : file.tensors()) file.read(info.name);
  });
  return message.starts_with("file: ") ? message.substr(6) : message;
}

void check(FileFormat format, const std::vector<Malformed>& files, std::size_t least) {
  EXPECT_GE(files.size(), least);
  for (const auto& [bytes, message] : files) EXPECT_EQ(complaint(format, bytes), message) << bytes;
}

Malformed npy(std::string_view header, const std::string& message) {
  return {npy_file(header, "data"), "header: " + message};
}

TEST(FilesErrors, EveryMalformedNpyHasItsMessage) {
  const std::string good = npy_array("<f4", "(2,)", "12345678");
  const std::string magic = bytes_of("\x93NUMPY");
  const std::string four = "{'descr': '<f4', 'fortran_order': False, 'shape': ";
  check(
      FileFormat::kNpy,
      {
          {"", "expected an .npy file, which begins with \"\\x93NUMPY\", got nothing"},
          {"PK", "expected an .npy file, which begins with \"\\x93NUMPY\", got \"PK\""},
          {"NUMPYNUMPY",
           "expected an .npy file, which begins with \"\\x93NUMPY\", got \"NUMPYNUM\""},
          {magic, "expected a header, got only the first 6 bytes of one"},
          {magic + bytes_of("\1\0v"), "expected a header, got only the first 9 bytes of one"},
          {magic + bytes_of("\2\0v\0\0"), "expected a header, got only the first 11 bytes of one"},
          {magic + bytes_of("\0\0v\0"), "expected version 1.0, 2.0 or 3.0 of .npy, got 0.0"},
          {magic + bytes_of("\4\0v\0"), "expected version 1.0, 2.0 or 3.0 of .npy, got 4.0"},
          {magic + bytes_of("\1\1v\0"), "expected version 1.0, 2.0 or 3.0 of .npy, got 1.1"},
          {magic + bytes_of("\xff\xffv\0"),
           "expected version 1.0, 2.0 or 3.0 of .npy, got 255.255"},
          {magic + bytes_of("\2\0\xff\xff\xff\xff"),
           "expected a header of at most 65536 bytes, got 4294967295"},
          {magic + bytes_of("\1\0v\0{}"), "expected a header of 128 bytes, got only 12 of them"},
          {good.substr(0, good.size() - 1),
           "expected 8 bytes after the header, for shape [2] of <f4, got 7"},
          {good + "9",
           "expected 8 bytes after the header, for shape [2] of <f4, got 9; a file of several "
           "arrays is not read"},
          npy("", "expected \"{\" at character 1, got its end"),
          npy("[]", "expected \"{\" at character 1, got \"[]\""),
          npy("{}", "expected the key \"descr\", got none"),
          npy("{} ", "expected the key \"descr\", got none"),
          npy("{", "expected a key in quotes at character 2, got its end"),
          npy("{descr: 1}", "expected a key in quotes at character 2, got \"descr: 1}\""),
          npy("{'descr", "expected a key in quotes at character 2, got \"'descr\""),
          npy("{'de\\x73cr': '<f4'}",
              "expected a key in quotes at character 2, got \"'de\\x73cr': '<f4'}\""),
          npy("{'descr'}", "expected \":\" at character 9, got \"}\""),
          npy("{'descr':}", "expected a type in quotes at character 10, got \"}\""),
          npy("{'descr': f4}", "expected a type in quotes at character 11, got \"f4}\""),
          npy("{'descr': '<f4' 'shape'}", "expected \"}\" at character 17, got \"'shape'}\""),
          npy("{'descr': '<f4',, }", "expected a key in quotes at character 17, got \", }\""),
          npy("{'dtype': '<f4'}", "expected the keys descr, fortran_order, shape, got \"dtype\""),
          npy("{'descr': '<f4', 'descr': '<f4'}", "the key \"descr\" occurs twice"),
          npy("{'descr': '<f4', 'shape': (2,)}", "expected the key \"fortran_order\", got none"),
          npy("{'descr': '<f4', 'fortran_order': False}", "expected the key \"shape\", got none"),
          npy("{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}",
              "expected True or False at character 35, got \"0, 'shape': (2,)}\""),
          npy("{'descr': '<f4', 'fortran_order': Falsehood}",
              "expected \"}\" at character 40, got \"hood}\""),
          npy(four + "2}", "expected a tuple of whole numbers at character 51, got \"2}\""),
          npy(four + "[2]}", "expected a tuple of whole numbers at character 51, got \"[2]}\""),
          npy(four + "(2)}", "expected \",\" at character 53, got \")}\""),
          npy(four + "(,)}", "expected a whole number at character 52, got \",)}\""),
          npy(four + "(2 3)}", "expected \",\" at character 54, got \"3)}\""),
          npy(four + "(-2,)}", "expected a whole number at character 52, got \"-2,)}\""),
          npy(four + "(+2,)}", "expected a whole number at character 52, got \"+2,)}\""),
          npy(four + "(2.0,)}", "expected \",\" at character 53, got \".0,)}\""),
          npy(four + "(0x2,)}", "expected \",\" at character 53, got \"x2,)}\""),
          npy(four + "(2**9,)}", "expected \",\" at character 53, got \"**9,)}\""),
          npy(four + "(None,)}", "expected a whole number at character 52, got \"None,)}\""),
          npy(four + "(9223372036854775808,)}",
              "expected a number that fits into 63 bits at character 52, got "
              "\"9223372036854775808,)}\""),
          npy(four + "(2,", "expected a whole number at character 54, got its end"),
          npy(four + "(2,)", "expected \"}\" at character 55, got its end"),
          npy(four + "(2,)} + 1", "expected the end of the header at character 57, got \"+ 1\""),
          npy(four + "(2,)}" + '\0',
              "expected the end of the header at character 56, got \"\\x00\""),
          npy("{'descr': [('a', ", "expected the end of a list at character 18, got its end"),
          npy("{'descr': [('a', '<f4)],", "expected a string at character 18, got \"'<f4)],\""),
          npy("{'descr': \x1b[31m}",
              "expected a type in quotes at character 11, got \"\\x1b[31m}\""),
          {npy_array("<f4", "(2147483648, 2147483648, 2)", ""),
           "shape [2147483648, 2147483648, 2] has more bytes than fit into 63 bits"},
          {npy_array("|i1", "(9223372036854775807,)", ""),
           "shape [9223372036854775807] has more bytes than fit into 63 bits"},
          {npy_array("<f4", "(4294967296, 4294967296)", ""),
           "shape [4294967296, 4294967296] has more bytes than fit into 63 bits"},
          {npy_array("<f8", "(1152921504606846975,)", ""),
           "expected 9223372036854775800 bytes after the header, for shape [1152921504606846975] "
           "of "
           "<f8, got 0"},
          {npy_array("<f4", "()", ""),
           "expected 4 bytes after the header, for shape [] of <f4, got 0"},
      },
      55);
}

Malformed tensors(std::string_view header, const std::string& message, std::string_view data = "") {
  return {safetensors_file(header, data), message};
}

/// A file whose header describes one tensor "a" with the members `inside`.
Malformed tensor(const std::string& inside, const std::string& message,
                 std::string_view data = "") {
  return tensors("{\"a\":{" + inside + "}}", message, data);
}

TEST(FilesErrors, EveryMalformedSafetensorsHasItsMessage) {
  const std::string f32 = R"("dtype":"F32","shape":[1],)";
  const auto two = [](const std::string& a, const std::string& b) {
    return R"({"a":{"dtype":"I8","shape":[2],"data_offsets":)" + a +
           R"(},"b":{"dtype":"I8","shape":[2],"data_offsets":)" + b + "}}";
  };
  check(
      FileFormat::kSafetensors,
      {
          {"",
           "expected a .safetensors file, which begins with the length of its header in 8 "
           "bytes, got 0 bytes"},
          {"1234567",
           "expected a .safetensors file, which begins with the length of its header in "
           "8 bytes, got 7 bytes"},
          {little_endian(2, 8), "expected a header of 2 bytes, got only 0 of them"},
          {little_endian(3, 8) + "{}", "expected a header of 3 bytes, got only 2 of them"},
          {little_endian(100'000'001, 8) + "{}",
           "expected a header of at most 100000000 bytes, got 100000001"},
          {little_endian(~0ULL, 8) + "{}",
           "expected a header of at most 100000000 bytes, got 18446744073709551615"},
          tensors("", "header: expected an object, which begins with \"{\", got nothing"),
          tensors(" {}", "header: expected an object, which begins with \"{\", got something else"),
          tensors("[]", "header: expected an object, which begins with \"{\", got something else"),
          tensors("{",
                  "header: expected JSON in UTF-8; line 1, column 2: syntax error "
                  "while parsing object key - unexpected end of input; expected string literal"),
          tensors("{} {}",
                  "header: expected JSON in UTF-8; line 1, column 4: syntax error "
                  "while parsing value - unexpected '{'; expected end of input"),
          tensors(std::string("{}\0 {", 5), "header: expected JSON in UTF-8, got a zero as byte 3"),
          tensors("{\"a\xff\":1}",
                  "header: expected JSON in UTF-8; line 1, column 4: syntax error "
                  "while parsing object key - invalid string: ill-formed UTF-8 byte; last read: "
                  "'\"a\\xff'; expected string literal"),
          tensors(R"({"a":1})", "header: a: expected an object, got 1"),
          tensors(R"({"a":-1})", "header: a: expected an object, got -1"),
          tensors(R"({"a":1.5})", "header: a: expected an object, got 1.5"),
          tensors(R"({"a":null})", "header: a: expected an object, got null"),
          tensors(R"({"a":true})", "header: a: expected an object, got true"),
          tensors(R"({"a":"b"})", "header: a: expected an object, got \"b\""),
          tensors(R"({"a":[]})", "header: a: expected an object, got an array"),
          tensors(R"({"\u001b[2J":[]})", "header: \\x1b[2J: expected an object, got an array"),
          tensors(R"({"a":{"b":{}}})",
                  "header: a: expected the keys dtype, shape, data_offsets, got \"b\""),
          tensors(R"({"__metadata__":[]})",
                  "header: __metadata__: expected an object, got an array"),
          tensors(R"({"__metadata__":null})", "header: __metadata__: expected an object, got null"),
          tensors(R"({"__metadata__":{"a":1}})", "header: __metadata__: expected strings, got 1"),
          tensors(R"({"__metadata__":{"a":{}}})",
                  "header: __metadata__: expected strings, got an object"),
          tensors(R"({"__metadata__":{"a":"b","a":"c"}})",
                  "header: __metadata__: the key \"a\" occurs twice"),
          tensors(R"({"__metadata__":{},"__metadata__":{}})",
                  "header: the name \"__metadata__\" occurs twice"),
          tensor("", "header: a: expected the key \"dtype\", got none"),
          tensor(R"("dtype":"F32")", "header: a: expected the key \"shape\", got none"),
          tensor(R"("dtype":"F32","shape":[])",
                 "header: a: expected the key \"data_offsets\", got none"),
          tensor(R"("dtype":"F32","dtype":"F32")", "header: a: the key \"dtype\" occurs twice"),
          tensor(R"("dtype":32)", "header: a: dtype: expected a string, got 32"),
          tensor(R"("dtype":["F32"])", "header: a: dtype: expected a string, got an array"),
          tensor(R"("shape":2)", "header: a: shape: expected an array of whole numbers, got 2"),
          tensor(R"("shape":"2")",
                 "header: a: shape: expected an array of whole numbers, got \"2\""),
          tensor(R"("shape":{})",
                 "header: a: shape: expected an array of whole numbers, got an object"),
          tensor(R"("shape":[-1])",
                 "header: a: shape: expected whole numbers from 0 to 2^63 - 1, got -1"),
          tensor(R"("shape":[1.0])",
                 "header: a: shape: expected whole numbers from 0 to 2^63 - 1, got 1.0"),
          tensor(R"("shape":[1e3])",
                 "header: a: shape: expected whole numbers from 0 to 2^63 - 1, got 1e3"),
          tensor(R"("shape":["1"])",
                 "header: a: shape: expected whole numbers from 0 to 2^63 - 1, got \"1\""),
          tensor(R"("shape":[[1]])",
                 "header: a: shape: expected whole numbers from 0 to 2^63 - 1, got an array"),
          tensor(R"("shape":[9223372036854775808])",
                 "header: a: shape: expected whole numbers from 0 to 2^63 - 1, got "
                 "9223372036854775808"),
          tensor(R"("shape":[18446744073709551616])",
                 "header: a: shape: expected whole numbers from 0 to 2^63 - 1, got "
                 "18446744073709551616"),
          tensor(R"("data_offsets":[0])", "header: a: data_offsets: expected 2 numbers, got 1"),
          tensor(R"("data_offsets":[0,1,2])", "header: a: data_offsets: expected 2 numbers, got 3"),
          tensor(f32 + R"("data_offsets":[4,0])",
                 "a: data_offsets: expected a beginning and an end, got [4, 0]", "1234"),
          tensor(f32 + R"("data_offsets":[0,4])",
                 "a: data_offsets: expected at most 3, where the file ends, got [0, 4]", "123"),
          tensor(f32 + R"("data_offsets":[0,9223372036854775807])",
                 "a: data_offsets: expected at most 4, where the file ends, got [0, "
                 "9223372036854775807]",
                 "1234"),
          tensor(f32 + R"("data_offsets":[0,4])",
                 "expected 4 bytes after the header, as its tensors have, got 5", "12345"),
          tensor(f32 + R"("data_offsets":[1,5])",
                 "a: data_offsets: expected 0 as the beginning, where the tensor before ends, got "
                 "[1, 5]",
                 "12345"),
          tensor(f32 + R"("data_offsets":[0,3])",
                 "a: expected 4 bytes, for shape [1] of F32, got 3", "123"),
          tensor(R"("dtype":"F64","shape":[2147483648,4294967296],"data_offsets":[0,0])",
                 "a: shape [2147483648, 4294967296] has more bytes than fit into 63 bits"),
          tensor(R"("dtype":"I8","shape":[4294967296,4294967296],"data_offsets":[0,0])",
                 "a: shape [4294967296, 4294967296] has more bytes than fit into 63 bits"),
          tensor(R"("dtype":"U64","shape":[1],"data_offsets":[0,8])",
                 "a: expected numbers below 2^63, since uint64 is read as int64, got "
                 "18446744073709551615 as element 0 in the order of the file",
                 "\xff\xff\xff\xff\xff\xff\xff\xff"),
          tensors(two("[0,2]", "[1,3]"),
                  "b: data_offsets: expected 2 as the beginning, where the tensor before ends, got "
                  "[1, 3]",
                  "123"),
          tensors(two("[0,2]", "[3,5]"),
                  "b: data_offsets: expected 2 as the beginning, where the tensor before ends, got "
                  "[3, 5]",
                  "12345"),
          tensors(two("[0,2]", "[0,2]"),
                  "b: data_offsets: expected 2 as the beginning, where the tensor before ends, got "
                  "[0, 2]",
                  "12"),
          tensors(R"({"a":{"dtype":"I8","shape":[0],"data_offsets":[0,0]},)"
                  R"("a":{"dtype":"I8","shape":[0],"data_offsets":[0,0]}})",
                  "header: the name \"a\" occurs twice"),
      },
      55);
}

TEST(FilesErrors, DeepAndLongHeaders) {
  const std::string deep(2'000'000, '[');
  EXPECT_EQ(complaint(FileFormat::kSafetensors, safetensors_file("{\"a\":" + deep)),
            "header: a: expected an object, got an array");
  const std::string name(1'000'000, 'x');
  EXPECT_LT(complaint(FileFormat::kSafetensors, safetensors_file("{\"" + name + "\":1}")).size(),
            300U);
  EXPECT_LT(complaint(FileFormat::kNpy, npy_file("{'" + name.substr(0, 60000))).size(), 300U);
  EXPECT_LT(complaint(FileFormat::kNpy, npy_array("<" + name.substr(0, 60000), "()", "")).size(),
            300U);
  const std::string brackets(30000, '[');
  EXPECT_THAT(complaint(FileFormat::kNpy, npy_file("{'descr': " + brackets)),
              testing::StartsWith("header: expected the end of a list"));
}

/// An uncompressed archive with one array [1, 2] per name. Its bytes can be replaced.
class Archive {
 public:
  explicit Archive(std::vector<std::string> names = {"a"}) {
    const Folder folder;
    const Tensor a = Tensor::from<float>({2}, {1, 2});
    std::vector<NamedTensor> tensors;
    for (const std::string& name : names) tensors.push_back({name, a});
    write_tensors(folder / "x.npz", tensors);
    bytes = read_file(folder / "x.npz");
    directory_ = bytes.find("PK\x01\x02");
    data_ = bytes.find("\x93NUMPY");
  }

  /// Returns the archive with bytes of the first directory entry replaced.
  std::string with_entry(std::size_t offset, std::string_view value) const {
    return replaced(directory_ + offset, value);
  }
  std::string with_data(std::size_t offset, std::string_view value) const {
    return replaced(data_ + offset, value);
  }

  std::string bytes;

 private:
  std::string replaced(std::size_t at, std::string_view value) const {
    std::string result = bytes;
    result.replace(at, value.size(), value);
    return result;
  }

  std::size_t directory_ = 0;
  std::size_t data_ = 0;
};

// Offsets of the fields of a directory entry.
constexpr std::size_t kFlags = 8;
constexpr std::size_t kMethod = 10;
constexpr std::size_t kStored = 20;
constexpr std::size_t kSize = 24;
constexpr std::size_t kOffset = 42;

TEST(FilesErrors, EveryMalformedNpzHasItsMessage) {
  const Archive one;
  const Archive two({"a", "b"});
  std::string twice = two.bytes;
  for (std::size_t at = twice.find("b.npy"); at != std::string::npos; at = twice.find("b.npy")) {
    twice[at] = 'a';
  }
  std::string deflated = one.with_entry(kMethod, little_endian(8, 2));
  const auto claims = [](std::uint64_t size, std::uint64_t stored) {
    return little_endian(stored, 4) + little_endian(size, 4);
  };
  check(
      FileFormat::kNpz,
      {
          {"", "expected an .npz file, which is a zip archive, got nothing"},
          {"PK", "expected an .npz file, which is a zip archive: Not a zip archive"},
          {std::string(1000, '\0'),
           "expected an .npz file, which is a zip archive: Not a zip archive"},
          {one.bytes.substr(0, one.bytes.size() - 1), kCutShort},
          {twice, "the name \"a\" occurs twice"},
          {one.with_entry(kMethod, little_endian(12, 2)),
           "a.npy: expected a stored or deflated member, got compression method 12"},
          {one.with_entry(kMethod, little_endian(93, 2)),
           "a.npy: expected a stored or deflated member, got compression method 93"},
          {one.with_entry(kFlags, little_endian(1, 2)),
           "a.npy: expected a member that is not encrypted, got one that is"},
          {one.with_entry(kStored, claims(136, 135)),
           "a.npy: expected possible sizes, got 136 bytes stored as 135 in an archive of 264"},
          {one.with_entry(kStored, claims(1 << 30, 1 << 30)),
           "a.npy: expected possible sizes, got 1073741824 bytes stored as 1073741824 in an "
           "archive of 264"},
          {one.with_entry(kMethod, little_endian(8, 2))
               .replace(one.bytes.find("PK\x01\x02") + kSize, 4, little_endian(0x7fffffff, 4)),
           "a.npy: expected possible sizes, got 2147483647 bytes stored as 136 in an archive of "
           "264"},
          {one.with_entry(kStored, claims(135, 135)),
           "a.npy: expected 8 bytes after the header, for shape [2] of <f4, got 7"},
          {one.with_entry(kStored, claims(100, 100)),
           "a.npy: expected a header of 128 bytes, got only 100 of them"},
          {one.with_entry(kStored, claims(5, 5)),
           "a.npy: expected an .npy file, which begins with \"\\x93NUMPY\", got \"\\x93NUMP\""},
          {one.with_entry(kStored, claims(0, 0)),
           "a.npy: expected an .npy file, which begins with \"\\x93NUMPY\", got nothing"},
          {one.with_data(0, "X"),
           "a.npy: expected an .npy file, which begins with \"\\x93NUMPY\", got "
           "\"XNUMPY\\x01\\x00\""},
          {one.with_data(6, "\x09"), "a.npy: expected version 1.0, 2.0 or 3.0 of .npy, got 9.0"},
          {one.with_data(10, "["),
           "a.npy: header: expected \"{\" at character 1, got \"['descr': '<f4', 'fortran_order': "
           "False, 'shape': (2,), }  …\""},
      },
      18);
  // The text of libzip's errors depends on its version.
  for (const std::string& bytes :
       {one.with_data(128, "X"), deflated, one.with_entry(kOffset, little_endian(7, 4)),
        one.with_entry(0, "XXXX"), one.with_entry(kOffset, little_endian(0xfffffff0U, 4)),
        one.with_entry(28, little_endian(60000, 2))}) {
    EXPECT_THAT(complaint(FileFormat::kNpz, bytes), testing::Not("no error"))
        << testing::PrintToString(bytes);
  }
}

const std::vector<std::pair<FileFormat, std::string>>& small_files() {
  static const std::vector<std::pair<FileFormat, std::string>> files = [] {
    const std::string header =
        R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
        R"("b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})";
    std::vector<std::pair<FileFormat, std::string>> result = {
        {FileFormat::kNpy, npy_array("<f4", "(2,)", "12345678")},
        {FileFormat::kNpy, npy_array(">i2", "(1, 2)", "1234", true)},
        {FileFormat::kSafetensors, safetensors_file(header, "12345678123")},
        {FileFormat::kNpz, Archive({"a", "b"}).bytes}};
    return result;
  }();
  return files;
}

TEST(FilesErrors, TruncatedAtEveryByte) {
  for (const auto& [format, whole] : small_files()) {
    EXPECT_EQ(complaint(format, whole), "no error");
    for (std::size_t size = 0; size < whole.size(); ++size) {
      // A copy of exactly `size` bytes, so that a sanitizer reports any read past the end.
      const std::string cut(whole.data(), size);
      EXPECT_NE(complaint(format, std::string(cut.c_str(), size)), "no error")
          << file_format_name(format) << " " << size;
    }
  }
}

TEST(FilesErrors, TruncatedFilesOnDisk) {
  const Folder folder;
  for (const auto& [format, whole] : small_files()) {
    const std::string name = "x." + std::string(file_format_name(format));
    for (std::size_t size = 0; size < whole.size(); ++size) {
      const std::string path = folder.write(name, whole.substr(0, size));
      EXPECT_NE(message_of([&] {
                  const TensorFile file = TensorFile::open(path);
                  for (const TensorInfo& info : file.tensors()) file.read(info.name);
                }),
                "no error")
          << name << " " << size;
    }
  }
}

TEST(FilesErrors, AnyCorruptByteIsHandled) {
  for (const auto& [format, whole] : small_files()) {
    for (std::size_t at = 0; at < whole.size(); ++at) {
      for (const char wrong :
           {'\0', '\xff', '\x7f', '9', '"', '(', static_cast<char>(whole[at] + 1),
            static_cast<char>(whole[at] ^ 0x80)}) {
        std::string bytes = whole;
        bytes[at] = wrong;
        // The file may be accepted or rejected, but without a crash, a read past the end or
        // another exception.
        complaint(format, bytes);
      }
    }
  }
}

}  // namespace
}  // namespace fovea::test
