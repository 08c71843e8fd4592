// SPDX-License-Identifier: Apache-2.0
//
// The codes of weights and the format of frames.

#include "view/explorer/frame.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/error.h"

namespace fovea::view {
namespace {

// Half a code of 1/1023 octave, and the rounding of log2 in float32 near 2^-64.
constexpr double kCodeError = 3.5e-4;

TEST(ViewFrame, EveryCodeIsTheCodeOfItsWeight) {
  double previous = 0.0;
  for (int code = kMinCode; code <= kMaxCode; ++code) {
    const double weight = decode_weight(static_cast<Code>(code));
    ASSERT_GT(weight, previous) << code;
    ASSERT_EQ(encode_weight(static_cast<float>(weight)), code);
    previous = weight;
  }
  EXPECT_EQ(decode_weight(kMaxCode), 1.0);
  EXPECT_EQ(decode_weight(kMinCode), std::exp2(-64.0));
}

TEST(ViewFrame, CodesAreMonotoneAndAsExactAsDocumented) {
  Code previous = kZeroCode;
  for (double weight = std::exp2(-64.0); weight < 1.0; weight *= 1.0000731) {
    const auto given = static_cast<float>(weight);
    const Code code = encode_weight(given);
    ASSERT_GE(code, previous) << weight;
    const double exact = static_cast<double>(given);
    ASSERT_NEAR(decode_weight(code), exact, kCodeError * exact);
    previous = code;
  }
}

TEST(ViewFrame, Ends) {
  EXPECT_EQ(encode_weight(0.0f), kZeroCode);
  EXPECT_EQ(encode_weight(std::nanf("")), kNanCode);
  EXPECT_EQ(encode_weight(std::numeric_limits<float>::denorm_min()), kMinCode);
  EXPECT_EQ(encode_weight(1.0f), kMaxCode);
  EXPECT_EQ(encode_weight(1.0000005f), kMaxCode);
  EXPECT_EQ(decode_weight(kZeroCode), 0.0);
  EXPECT_EQ(decode_weight(kHiddenCode), 0.0);
  EXPECT_TRUE(std::isnan(decode_weight(kNanCode)));
}

TEST(ViewFrame, MaximumOfCodes) {
  EXPECT_EQ(larger_code(kHiddenCode, kZeroCode), kZeroCode);
  EXPECT_EQ(larger_code(kHiddenCode, kHiddenCode), kHiddenCode);
  EXPECT_EQ(larger_code(100, 99), 100);
  EXPECT_EQ(larger_code(100, kNanCode), kNanCode);
  EXPECT_EQ(larger_code(kNanCode, kHiddenCode), kNanCode);
}

TEST(ViewFrame, BytesAreThoseOfTheSpecification) {
  const std::string bytes = encode_frame(
      {.reduce = Pool::kMax, .level = 5, .x = 7, .y = 0x01020304, .columns = 2, .rows = 2},
      {kHiddenCode, kNanCode, 1026, kMaxCode});
  const std::vector<int> expected = {
      44, 0, 0,    0,    'F', 'V', 'T',  '1',    // length, name
      1,  1, 5,    5,    7,   0,   0,    0,      // log16, max, level, hidden and NaN, x
      4,  3, 2,    1,    2,   0,   2,    0,      // y, columns, rows
      0,  0, 0,    0,    0,   0,   0,    0x20,   // reserved, 2^-63
      0,  0, 0x80, 0x3f, 0,   0,   0,    0,      // 1.0, reserved
      0,  0, 1,    0,    2,   4,   0xc3, 0xff};  // codes
  ASSERT_EQ(bytes.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(static_cast<unsigned char>(bytes[i]), expected[i]) << "byte " << i;
  }
  const Frame frame = decode_frame(bytes);
  EXPECT_EQ(frame.codes, (std::vector<Code>{kHiddenCode, kNanCode, 1026, kMaxCode}));
  EXPECT_EQ(frame.header.level, 5);
  EXPECT_EQ(frame.header.x, 7);
  EXPECT_EQ(frame.header.y, 0x01020304);
  EXPECT_EQ(frame.header.columns, 2);
  EXPECT_EQ(frame.header.rows, 2);
  EXPECT_EQ(frame.header.flags, frame_flags::kHasHidden | frame_flags::kHasNan);
  EXPECT_EQ(frame.header.smallest, std::exp2(-63.0f));
  EXPECT_EQ(frame.header.largest, 1.0f);
}

TEST(ViewFrame, HiddenFramesHaveNoCodes) {
  const std::vector<Code> hidden(6, kHiddenCode);
  const std::string bytes = encode_frame({.reduce = Pool::kMean, .columns = 3, .rows = 2}, hidden);
  EXPECT_EQ(bytes.size(), kFrameHeaderBytes);
  const Frame frame = decode_frame(bytes);
  EXPECT_EQ(frame.codes, hidden);
  EXPECT_EQ(frame.header.reduce, Pool::kMean);
  EXPECT_EQ(frame.header.flags, frame_flags::kHasHidden | frame_flags::kAllHidden);
  EXPECT_EQ(frame.header.largest, 0.0f);
}

TEST(ViewFrame, OtherBytesAreRejected) {
  const std::string good = encode_frame({.columns = 1, .rows = 1}, {kMaxCode});
  EXPECT_NO_THROW(decode_frame(good));
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_THROW(decode_frame(good.substr(0, size)), InvalidArgument) << size;
  }
  EXPECT_THROW(decode_frame(good + "x"), InvalidArgument);
  std::string other = good;
  other[7] = '2';
  EXPECT_THROW(decode_frame(other), InvalidArgument);
}

TEST(ViewFrame, RowsThatAreNotFinal) {
  const FrameHeader header = {.level = 7, .columns = 2, .rows = 3};
  const std::vector<Code> codes = {kUnknownCode, kHiddenCode, 500, kUnknownCode, 900, kHiddenCode};
  const std::vector<RowState> rows = {RowState::kUnknown, RowState::kPreview, RowState::kFinal};
  const std::string bytes = encode_frame(header, codes, rows);
  EXPECT_FALSE(frame_is_final(bytes));
  EXPECT_TRUE(frame_is_final(encode_frame(header, codes)));
  const Frame frame = decode_frame(bytes);
  EXPECT_EQ(frame.codes, codes);
  EXPECT_EQ(frame.rows, rows);
  EXPECT_EQ(frame.header.flags, frame_flags::kHasHidden | frame_flags::kPreview);
  // Unknown cells are not weights.
  EXPECT_EQ(frame.header.largest, static_cast<float>(decode_weight(900)));
  EXPECT_TRUE(std::isnan(decode_weight(kUnknownCode)));
  EXPECT_THROW(decode_frame(bytes.substr(0, bytes.size() - 1)), InvalidArgument);
  std::string wrong = bytes;
  wrong.back() = 3;
  EXPECT_THROW(decode_frame(wrong), InvalidArgument);
}

TEST(ViewFrame, TheLargerOfTwoCells) {
  EXPECT_EQ(larger_code(3, 9), 9);
  EXPECT_EQ(larger_code(kHiddenCode, kZeroCode), kZeroCode);
  EXPECT_EQ(larger_code(kHiddenCode, kUnknownCode), kUnknownCode);
  EXPECT_EQ(larger_code(kUnknownCode, kUnknownCode), kUnknownCode);
  EXPECT_EQ(larger_code(kUnknownCode, kZeroCode), kZeroCode);
  EXPECT_EQ(larger_code(9, kUnknownCode), 9);
  EXPECT_EQ(larger_code(kUnknownCode, kNanCode), kNanCode);
  EXPECT_EQ(larger_code(kNanCode, 9), kNanCode);
}

}  // namespace
}  // namespace fovea::view
