// SPDX-License-Identifier: Apache-2.0
//
// OutputFile's access to what has been written: positions, and a mapping of the temporary file.

#include "io/output_file.h"

#include <filesystem>
#include <string>
#include <string_view>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "fovea/error.h"

#include "support/tensor_files.h"

namespace fovea::test {
namespace {

std::string_view text_of(const FileBytes& file) {
  return {reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()};
}

TEST(OutputFilePositions, WriteAtReplacesBytes) {
  const Folder folder;
  const std::string path = folder / "x";
  OutputFile file(path);
  EXPECT_TRUE(file.is_temporary());
  file.write("0123456789");
  file.write_at(2, "ab");
  file.write_at(9, "");
  file.write("end");  // after the last byte, wherever write_at() wrote
  EXPECT_EQ(text_of(file.map()), "01ab456789end");
  file.write_at(0, "XY");
  EXPECT_FALSE(std::filesystem::exists(path));
  file.finish();
  EXPECT_EQ(read_file(path), "XYab456789end");
  EXPECT_EQ(folder.count(), 1);
}

/// Offsets and lengths beyond a page, and a mapping that outlives the file.
TEST(OutputFilePositions, MapsWhatIsWrittenSoFar) {
  const Folder folder;
  const std::string path = folder.write("x", "old");
  FileBytes first, second;
  std::string expected(100'000, '.');
  {
    OutputFile file(path);
    EXPECT_EQ(text_of(file.map()), "");
    file.write(expected);
    first = file.map();
    EXPECT_EQ(text_of(first), expected);
    file.write_at(70'000, "changed");
    file.write("more");
    expected.replace(70'000, 7, "changed");
    second = file.map();
    EXPECT_EQ(text_of(second), expected + "more");
    EXPECT_EQ(read_file(path), "old");
  }
  // Not finished: the temporary file is gone, the mapping is not.
  EXPECT_EQ(folder.count(), 1);
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(text_of(second), expected + "more");
}

TEST(OutputFilePositions, OtherFilesAreNotTemporary) {
  const Folder folder;
  EXPECT_FALSE(OutputFile::standard_output().is_temporary());
  EXPECT_FALSE(OutputFile("/dev/null").is_temporary());
  EXPECT_TRUE(OutputFile(folder.write("x", "regular")).is_temporary());
  std::filesystem::create_symlink(folder / "x", folder / "link");
  EXPECT_TRUE(OutputFile(folder / "link").is_temporary());
  EXPECT_EQ(read_file(folder / "x"), "regular");
  EXPECT_THROW(OutputFile(folder / "none/x"), OutputError);
}

}  // namespace
}  // namespace fovea::test
