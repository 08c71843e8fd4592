// SPDX-License-Identifier: Apache-2.0
//
// Specs: how "FILE:NAME" splits into file and name, and paths that are not readable files.

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fovea/error.h"
#include "fovea/files.h"

#include "support/message_of.h"
#include "support/tensor_files.h"

namespace fovea::test {
namespace {

using testing::HasSubstr;
using testing::Pair;

std::pair<std::string, std::string> parts(const std::string& text) {
  const TensorSpec spec = parse_tensor_spec(text);
  return {spec.path, spec.name};
}

TEST(FilesSpec, ExistingFiles) {
  const Folder folder;
  std::filesystem::create_directory(folder / "a:b");
  for (const char* name : {"a:b/x.npz", "x.npz", "x.npz:q", "plain"}) folder.write(name, "");
  EXPECT_THAT(parts(folder / "x.npz"), Pair(folder / "x.npz", ""));
  EXPECT_THAT(parts(folder / "x.npz:k"), Pair(folder / "x.npz", "k"));
  EXPECT_THAT(parts(folder / "x.npz:k:bf16"), Pair(folder / "x.npz", "k:bf16"));
  EXPECT_THAT(parts(folder / "x.npz:"), Pair(folder / "x.npz", ""));
  EXPECT_THAT(parts(folder / "plain:k"), Pair(folder / "plain", "k"));
  EXPECT_THAT(parts(folder / "a:b/x.npz"), Pair(folder / "a:b/x.npz", ""));
  EXPECT_THAT(parts(folder / "a:b/x.npz:c:d"), Pair(folder / "a:b/x.npz", "c:d"));
  // The longest existing path wins: "x.npz:q" is the file of that name, not the tensor q of x.npz.
  EXPECT_THAT(parts(folder / "x.npz:q"), Pair(folder / "x.npz:q", ""));
  EXPECT_THAT(parts(folder / "x.npz:q:r"), Pair(folder / "x.npz:q", "r"));
}

TEST(FilesSpec, MissingFiles) {
  EXPECT_THAT(parts("no/x.npz:k"), Pair("no/x.npz", "k"));
  EXPECT_THAT(parts("no:such/x.NPY:bf16"), Pair("no:such/x.NPY", "bf16"));
  EXPECT_THAT(parts("no:such/x.safetensors:a:b.npz:c"), Pair("no:such/x.safetensors", "a:b.npz:c"));
  EXPECT_THAT(parts("no.such:k"), Pair("no.such:k", ""));
  EXPECT_THAT(parts(""), Pair("", ""));
  EXPECT_THAT(parts(":"), Pair(":", ""));
}

std::string io_message(const std::string& path) {
  try {
    TensorFile::open(path);
  } catch (const IoError& error) {
    return error.what();
  }
  return "no error";
}

TEST(FilesSpec, PathsThatAreNotFiles) {
  const Folder folder;
  const std::string path = folder / "x.npy";
  EXPECT_EQ(io_message(path), path + ": cannot be read: No such file or directory");
  EXPECT_THAT(io_message(""), HasSubstr("No such file"));
  EXPECT_EQ(io_message(folder / ""), (folder / "") + ": expected a file, got a directory");
  EXPECT_EQ(io_message("/dev/zero"), "/dev/zero: expected a file, got a device");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  // The FIFO has no writer; opening it must not block.
  EXPECT_EQ(io_message(path),
            path + ": expected a file, got a FIFO (\"-\" reads from standard input)");
  std::filesystem::create_symlink("loop", folder / "loop");
  EXPECT_THAT(io_message(folder / "loop"), HasSubstr("symbolic links"));
  EXPECT_THAT(io_message((folder / "x.npy") + "/y"), HasSubstr("Not a directory"));
}

TEST(FilesSpec, UnreadableFiles) {
  if (::geteuid() == 0) GTEST_SKIP() << "the superuser may read everything";
  const Folder folder;
  const std::string path = folder.write("x.npy", "");
  ASSERT_EQ(::chmod(path.c_str(), 0), 0);
  EXPECT_EQ(io_message(path), path + ": cannot be read: Permission denied");
}

TEST(FilesSpec, FormatIsDetectedFromTheContent) {
  const Folder folder;
  const std::string npy = npy_array("|i1", "(1,)", "\x05");
  const std::string safetensors = safetensors_of("I8", "[1]", "\x05");
  const Tensor five = Tensor::from<std::int64_t>({1}, {5});
  write_tensor(folder / "five.npz", five);
  const std::string npz = read_file(folder / "five.npz");
  // The extension does not matter.
  for (const char* name : {"x.npy", "x.npz", "x", "x.bin"}) {
    for (const std::string& bytes : {npy, npz}) {
      EXPECT_TRUE(same_tensor(read_tensor(folder.write(name, bytes)), five)) << name;
    }
  }
  for (const char* name : {"x.safetensors", "x", "x.bin"}) {
    EXPECT_TRUE(same_tensor(read_tensor(folder.write(name, safetensors)), five)) << name;
  }
  const auto message = [&](const char* name, const char* bytes) {
    const std::string path = folder.write(name, bytes);
    return message_of([&] { TensorFile::open(path); }).substr(path.size() + 2);
  };
  EXPECT_EQ(message("x", ""), "expected an .npy, .npz or .safetensors file, got an empty file");
  EXPECT_EQ(message("x",
                    "\x7f"
                    "ELF"),
            "expected an .npy, .npz or .safetensors file, got one that begins with \"\\x7fELF\"");
  EXPECT_EQ(message("x.npy", ""),
            "expected an .npy file, which begins with \"\\x93NUMPY\", got nothing");
  EXPECT_EQ(message("x.npz", ""), "expected an .npz file, which is a zip archive, got nothing");
  EXPECT_EQ(message("x.safetensors", ""),
            "expected a .safetensors file, which begins with the length of its header in 8 bytes, "
            "got 0 bytes");
}

}  // namespace
}  // namespace fovea::test
