// SPDX-License-Identifier: Apache-2.0
//
// fovea/random.h against the recorded stream of NumPy's RandomState (tests/data/numpy_random.txt)
// and the random matrices of a notebook, and edge cases of the contract.

#include "fovea/random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/error.h"

#include "support/limits.h"
#include "support/message_of.h"
#include "support/parse.h"
#include "support/tensors.h"

namespace fovea {
namespace {

using test::elements;
using test::kMaxInt;
using test::message_of;
using test::parse;

constexpr std::int64_t kMinInt = std::numeric_limits<std::int64_t>::min();

std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  for (std::size_t at = line.find_first_not_of(' '); at != std::string::npos;) {
    const std::size_t end = std::min(line.find(' ', at), line.size());
    words.push_back(line.substr(at, end - at));
    at = line.find_first_not_of(' ', end);
  }
  return words;
}

// Parses "2x3" as [2, 3] and "0d" as [].
Shape parse_shape(const std::string& text) {
  Shape shape;
  if (text == "0d") return shape;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('x', at), text.size());
    shape.push_back(parse<std::int64_t>(text.substr(at, end - at)));
    at = end + 1;
  }
  return shape;
}

// Returns the distance of a and b in ulps, 0 if their bits are equal.
std::uint64_t ulps_apart(double a, double b) {
  if (std::signbit(a) != std::signbit(b) || !std::isfinite(a) || !std::isfinite(b)) {
    return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b) ? 0 : ~0ULL;
  }
  const auto x = std::bit_cast<std::uint64_t>(a);
  const auto y = std::bit_cast<std::uint64_t>(b);
  return x > y ? x - y : y - x;
}

// Replays lines of the recording and compares the values of the stream.
class Player {
 public:
  void play(const std::string& line) {
    const std::vector<std::string> words = words_of(line);
    const std::string& call = words.at(0);
    if (call == "seed") {
      random_.seed(parse<std::uint64_t>(words.at(1)));
    } else if (call == "words") {
      ASSERT_EQ(words.size(), 2 + parse<std::size_t>(words[1]));
      for (std::size_t i = 2; i < words.size(); ++i) {
        ASSERT_EQ(random_.next_word(), parse<std::uint32_t>(words[i]));
        ++checked;
      }
    } else if (call == "randint") {
      const auto low = parse<std::int64_t>(words.at(1));
      const auto high = parse<std::int64_t>(words.at(2));
      const bool single = words.at(3) == "-";
      const Shape shape = single ? Shape{} : parse_shape(words[3]);
      const Tensor drawn = single ? Tensor::from<std::int64_t>({}, {random_.randint(low, high)})
                                  : random_.randint(low, high, shape);
      compare<std::int64_t>(drawn, shape, {words.begin() + 4, words.end()}, 0);
    } else {
      ASSERT_TRUE(call == "rand" || call == "randn") << call;
      const bool normal = call == "randn";
      const bool single = words.at(1) == "-";
      const Shape shape = single ? Shape{} : parse_shape(words[1]);
      Tensor drawn;
      if (single) {
        drawn = Tensor::from<double>({}, {normal ? random_.randn() : random_.rand()});
      } else {
        drawn = normal ? random_.randn(shape) : random_.rand(shape);
      }
      compare<double>(drawn, shape, {words.begin() + 2, words.end()}, normal ? 1 : 0);
    }
  }

  std::int64_t checked = 0;
  std::int64_t one_ulp_off = 0;

 private:
  template <class T>
  void compare(const Tensor& drawn, const Shape& shape, const std::vector<std::string>& expected,
               std::uint64_t tolerance) {
    ASSERT_EQ(drawn.dtype(), dtype_of<T>());
    ASSERT_EQ(drawn.shape(), shape);
    const auto values = drawn.span<T>();
    ASSERT_EQ(values.size(), expected.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const T want = parse<T>(expected[i]);
      if constexpr (std::is_same_v<T, double>) {
        const std::uint64_t distance = ulps_apart(values[i], want);
        ASSERT_LE(distance, tolerance) << "element " << i << ": " << expected[i];
        one_ulp_off += distance != 0 ? 1 : 0;
      } else {
        ASSERT_EQ(values[i], want) << "element " << i;
      }
      ++checked;
    }
  }

  RandomState random_{0};
};

TEST(Random, EqualsTheRecordedStreamOfNumpy) {
  const std::string path = std::string(FOVEA_TEST_DATA) + "/numpy_random.txt";
  std::ifstream file(path);
  ASSERT_TRUE(file) << path;
  Player player;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.empty() || line[0] == '#') continue;
    SCOPED_TRACE("line " + std::to_string(number) + ": " + line.substr(0, 60));
    player.play(line);
    if (HasFatalFailure()) return;
  }
  EXPECT_GE(player.checked, 20000);
  std::cout << "checked " << player.checked << " values, of which " << player.one_ulp_off
            << " normal ones are an ulp off NumPy's\n";
}

TEST(Random, UlpsApartDistinguishesDoubles) {
  EXPECT_EQ(ulps_apart(1.0, 1.0), 0U);
  EXPECT_EQ(ulps_apart(1.0, std::nextafter(1.0, 2.0)), 1U);
  EXPECT_EQ(ulps_apart(-1.0, std::nextafter(-1.0, 0.0)), 1U);
  EXPECT_GT(ulps_apart(1.0, -1.0), 1U);
  EXPECT_GT(ulps_apart(0.0, -0.0), 1U);
  EXPECT_GT(ulps_apart(std::numeric_limits<double>::quiet_NaN(), 1.0), 1U);
}

TEST(Random, RedrawsTheMatricesOfTheNotebook) {
  RandomState random(42);
  for (int i = 0; i < 72; ++i) random.next_word();
  using Row = std::vector<std::int64_t>;
  EXPECT_EQ(elements<std::int64_t>(random.randint(0, 9, {3, 3})), (Row{8, 4, 1, 3, 6, 7, 2, 0, 3}));
  const std::vector<Row> projections = {{1, 1, 1, 1, 1, 1, 1, 0, 2},
                                        {1, 1, 1, 1, 1, 1, 2, 2, 1},
                                        {2, 0, 1, 0, 0, 1, 2, 0, 1},
                                        {0, 0, 0, 0, 2, 0, 0, 0, 2},
                                        {0, 0, 2, 2, 2, 0, 2, 2, 0}};
  for (const Row& expected : projections) {
    EXPECT_EQ(elements<std::int64_t>(random.randint(0, 3, {3, 3})), expected);
  }
}

TEST(Random, FirstAndTenThousandthWordOfTheReferenceImplementation) {
  // The C++ standard specifies the 10000th word of mt19937 with its default seed 5489.
  RandomState random(5489);
  EXPECT_EQ(random.next_word(), 3499211612U);
  for (int i = 2; i < 10000; ++i) random.next_word();
  EXPECT_EQ(random.next_word(), 4123659995U);
}

TEST(Random, SeedingRestartsAndDropsTheSpareNormal) {
  RandomState random(7);
  const double first = random.randn();
  const double second = random.randn();
  random.seed(7);
  EXPECT_EQ(random.randn(), first);
  random.seed(7);  // discards the spare value `second`
  EXPECT_EQ(random.randn(), first);
  EXPECT_EQ(random.randn(), second);
}

TEST(Random, CopiesContinueIndependently) {
  RandomState random(3);
  random.randn();  // leaves a spare value, which is copied too
  RandomState copy = random;
  EXPECT_EQ(copy.randn(), random.randn());
  const std::uint32_t word = copy.next_word();
  copy.next_word();
  EXPECT_EQ(random.next_word(), word);
}

TEST(Random, SingleCandidateConsumesNoWords) {
  RandomState random(11);
  const RandomState before = random;
  EXPECT_EQ(random.randint(-4, -3), -4);
  EXPECT_EQ(random.randint(kMaxInt - 1, kMaxInt), kMaxInt - 1);
  EXPECT_EQ(elements<std::int64_t>(random.randint(5, 6, {3})),
            (std::vector<std::int64_t>{5, 5, 5}));
  EXPECT_EQ(random.next_word(), RandomState(before).next_word());
}

TEST(Random, WideRangesTakeTwoWordsHighWordFirst) {
  RandomState random(12);
  RandomState words(12);
  const std::uint64_t high = words.next_word();
  const std::uint64_t bits = high << 32 | words.next_word();
  const std::int64_t drawn = random.randint(kMinInt, kMaxInt);
  EXPECT_EQ(static_cast<std::uint64_t>(drawn), static_cast<std::uint64_t>(kMinInt) + bits);
  EXPECT_EQ(random.randint(0, std::int64_t{1} << 32), words.next_word());  // 32 bits: one word
}

TEST(Random, ValuesStayInRange) {
  RandomState random(13);
  for (const std::int64_t x : elements<std::int64_t>(random.randint(-2, 3, {1000}))) {
    ASSERT_TRUE(x >= -2 && x < 3) << x;
  }
  for (const double x : elements<double>(random.rand({1000}))) {
    ASSERT_TRUE(x >= 0.0 && x < 1.0) << x;
    ASSERT_EQ(x * 0x1p53, std::floor(x * 0x1p53));
  }
}

TEST(Random, EmptyShapesDrawNothingAndScalarShapesOneValue) {
  RandomState random(14);
  RandomState twin(14);
  EXPECT_EQ(random.randint(0, 9, {2, 0}).size(), 0);
  EXPECT_EQ(random.rand({0}).size(), 0);
  EXPECT_EQ(random.randn({0, 5}).size(), 0);
  const Tensor scalar = random.rand(Shape{});
  EXPECT_EQ(scalar.rank(), 0);
  EXPECT_EQ(scalar.value({}), twin.rand());
}

TEST(Random, RejectsInvalidSeeds) {
  EXPECT_EQ(message_of([] { RandomState(std::uint64_t{1} << 32); }),
            "seed: expected 0 .. 4294967295, got 4294967296");
  EXPECT_NO_THROW(RandomState(0xffffffffU));
  RandomState random(15);
  RandomState twin(15);
  EXPECT_THROW(random.seed(~0ULL), InvalidArgument);
  EXPECT_EQ(random.next_word(), twin.next_word());
}

TEST(Random, RejectsEmptyRanges) {
  RandomState random(16);
  RandomState twin(16);
  EXPECT_EQ(message_of([&] { random.randint(5, 5); }),
            "randint: expected low < high, got low = 5, high = 5");
  EXPECT_EQ(message_of([&] {
              random.randint(3, -2, {2, 2});
            }),
            "randint: expected low < high, got low = 3, high = -2");
  EXPECT_THROW(random.randint(0, 0, {0}), InvalidArgument);
  EXPECT_THROW(random.rand({-1}), InvalidArgument);
  EXPECT_EQ(random.next_word(), twin.next_word());
}

}  // namespace
}  // namespace fovea
