// SPDX-License-Identifier: Apache-2.0
//
// Parameters in files: round trips, also between dtypes, and mismatches, which are reported before
// any parameter changes.

#include "fovea/nn/checkpoint.h"

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fovea/error.h"
#include "fovea/files.h"
#include "fovea/nn/linear.h"
#include "fovea/nn/transformer.h"

#include "support/message_of.h"
#include "support/random_problem.h"

namespace fovea::nn {
namespace {

using test::message_of;
using testing::HasSubstr;
using testing::Not;

class NnCheckpoint : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  /// Fails if a parameter differs by more than `rounding`.
  static void expect_same(const Parameters& found, const Parameters& expected, double rounding) {
    for (const Parameter& parameter : expected) {
      const Parameter* const other = found.find(parameter.name);
      ASSERT_NE(other, nullptr) << parameter.name;
      EXPECT_LE(test::max_difference(other->value, parameter.value), rounding) << parameter.name;
    }
  }

 private:
  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) /
      testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(NnCheckpoint, ReadsBackWhatItWrote) {
  const TransformerOptions options{.width = 8, .heads = 2, .inner = 12};
  for (const char* const name : {"model.safetensors", "model.npz"}) {
    Model written(1), read(2);
    const Transformer one(written.scope(), 1, 2, options), other(read.scope(), 1, 2, options);
    const void* const place = read.parameters().begin()->value.view().data();
    save_parameters(written.parameters(), path(name));
    load_parameters(read.parameters(), path(name));
    expect_same(read.parameters(), written.parameters(), 0.0);
    EXPECT_EQ(read.parameters().begin()->value.view().data(), place);
  }
}

TEST_F(NnCheckpoint, RoundsBetweenTypes) {
  Model exact(1, DType::kFloat64), rounded(2), back(3, DType::kFloat64);
  const Linear a(exact.scope(), 5, 7), b(rounded.scope(), 5, 7), c(back.scope(), 5, 7);
  save_parameters(exact.parameters(), path("exact.safetensors"));
  load_parameters(rounded.parameters(), path("exact.safetensors"));
  expect_same(rounded.parameters(), exact.parameters(), 0x1p-25);  // all values are below 1
  save_parameters(rounded.parameters(), path("rounded.safetensors"));
  load_parameters(back.parameters(), path("rounded.safetensors"));
  expect_same(back.parameters(), rounded.parameters(), 0.0);
}

TEST_F(NnCheckpoint, AcceptsFloat16AndRejectsIntegers) {
  Model model(1);
  const Linear layer(model.scope(), 1, 2, false);
  const std::vector<Float16> halves{Float16(0.5f), Float16(-3.0f)};
  write_tensor(path("half.safetensors"), TensorView(halves.data(), {2, 1}), "weight");
  load_parameters(model.parameters(), path("half.safetensors"));
  EXPECT_EQ(model.parameters().find("weight")->value.value({1, 0}), -3.0);
  const std::vector<std::int64_t> whole{1, 2};
  write_tensor(path("whole.safetensors"), TensorView(whole.data(), {2, 1}), "weight");
  EXPECT_THAT(message_of([&] { load_parameters(model.parameters(), path("whole.safetensors")); }),
              HasSubstr("weight: expected floats, got I64"));
}

TEST_F(NnCheckpoint, ListsMismatchesAndChangesNothing) {
  Model model(1), before(1), other(2);
  const Linear one(model.scope("map"), 3, 2), same(before.scope("map"), 3, 2),
      two(model.scope("last"), 2, 2), same_two(before.scope("last"), 2, 2);
  // A wrong shape, missing parameters, and more unexpected parameters than the message lists.
  const Linear wide(other.scope("map"), 4, 2);
  std::vector<Linear> strangers;
  for (int i = 0; i < 2; ++i) {
    strangers.emplace_back(other.scope("extra" + std::to_string(i)), 1, 1);
  }
  save_parameters(other.parameters(), path("other.safetensors"));
  const std::string said =
      message_of([&] { load_parameters(model.parameters(), path("other.safetensors")); });
  EXPECT_THAT(said, HasSubstr("other.safetensors: expected exactly the parameters of the model"));
  EXPECT_THAT(said, HasSubstr("2 missing (last.weight, last.bias)"));
  EXPECT_THAT(said, HasSubstr("4 not expected (extra0.bias, extra0.weight, extra1.bias, ...)"));
  EXPECT_THAT(said, HasSubstr("1 that do not fit (map.weight: expected [2, 3], got [2, 4])"));
  EXPECT_THAT(said, Not(HasSubstr("map.bias")));
  expect_same(model.parameters(), before.parameters(), 0.0);
}

TEST_F(NnCheckpoint, DamagedFilesChangeNothing) {
  Model written(1), model(2), before(2);
  const Linear one(written.scope(), 7, 5), two(model.scope(), 7, 5), three(before.scope(), 7, 5);
  save_parameters(written.parameters(), path("model.npz"));
  // Damages the last member's elements, just before the directory of the archive: its checksum is
  // tested when it is read, after the first member.
  std::string bytes;
  {
    std::ifstream file(path("model.npz"), std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(file), {});
  }
  const std::size_t directory = bytes.find("PK\x01\x02");
  ASSERT_NE(directory, std::string::npos);
  bytes[directory - 1] ^= 1;
  std::ofstream(path("model.npz"), std::ios::binary) << bytes;
  EXPECT_THAT(message_of([&] { load_parameters(model.parameters(), path("model.npz")); }),
              HasSubstr("bias"));
  expect_same(model.parameters(), before.parameters(), 0.0);
}

TEST_F(NnCheckpoint, FormatsWithoutNamesAreRefused) {
  Model model(1);
  const Linear layer(model.scope(), 1, 2, false);
  for (const std::string& name : {path("model.npy"), path("model"), std::string("-")}) {
    EXPECT_EQ(message_of([&] { save_parameters(model.parameters(), name); }),
              name + ": expected a name that ends in .safetensors or .npz");
    EXPECT_FALSE(std::filesystem::exists(name));
  }
  save_parameters(model.parameters(), path("MODEL.NPZ"));
  load_parameters(model.parameters(), path("MODEL.NPZ"));
}

TEST_F(NnCheckpoint, FileErrors) {
  Model model(1);
  const Linear layer(model.scope(), 3, 2);
  EXPECT_THROW(load_parameters(model.parameters(), path("none.safetensors")), IoError);
  EXPECT_THROW(save_parameters(model.parameters(), path("no/such/folder.safetensors")),
               OutputError);
  EXPECT_THAT(message_of([&] { save_parameters(model.parameters(), path("model.pt")); }),
              HasSubstr(".safetensors"));
  save_parameters(model.parameters(), path("model.safetensors"));
  std::filesystem::resize_file(path("model.safetensors"), 100);
  EXPECT_THAT(message_of([&] { load_parameters(model.parameters(), path("model.safetensors")); }),
              HasSubstr("model.safetensors"));
}

}  // namespace
}  // namespace fovea::nn
