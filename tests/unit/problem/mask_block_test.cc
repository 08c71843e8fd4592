// SPDX-License-Identifier: Apache-2.0
//
// A mask's classification of blocks, key ranges of rows and runs of keys, compared with its answer
// for each score: every rule, alone and combined, over all small rectangles, with sequences that
// start anywhere and offsets that point beyond the keys.

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/mask.h"
#include "fovea/random.h"
#include "fovea/tensor.h"

#include "support/masks.h"
#include "support/tensors.h"

namespace fovea {

namespace {

using test::at;
using test::ids;

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kFar = std::int64_t{1} << 40;  // the largest offset of an alignment

/// Two batch items, or two sequences of a packed tensor, with two heads each. The tensors are
/// longer than an item, so that an item can start anywhere in them.
constexpr std::int64_t kItems = 2, kHeads = 2, kBlockQueries = 5, kBlockKeys = 6;
constexpr std::int64_t kAllQueries = 9, kAllKeys = 11;

/// Returns a random mask with 10 %, 50 % or 90 % true elements, depending on the seed.
Tensor drawn_mask(const Shape& shape, std::uint64_t seed) {
  RandomState random(seed);
  Tensor result(DType::kBool, shape);
  const std::int64_t share = 1 + static_cast<std::int64_t>(seed % 3) * 4;  // of 10
  for (bool& one : result.span<bool>()) one = random.randint(0, 10) < share;
  return result;
}

struct NamedMask {
  Mask mask;
  /// True if key_range is exact for every row (documents: for every row whose key ids ascend).
  bool exact = true;
  bool documents = false;
};

/// Returns every rule in all its variants. Batch dimensions have extent 1 for packed sequences.
std::vector<NamedMask> rules(bool packed) {
  const std::int64_t batch = packed ? 1 : kItems;
  const Tensor unsorted_rows = RandomState(5).randint(0, 3, {batch, kAllKeys});
  const Tensor query_rows = RandomState(6).randint(0, 3, {batch, kAllQueries});
  std::vector<NamedMask> result = {
      {Mask()},
      {causal()},
      {window(1, 0)},
      {window(0, 2)},
      {window(0, 0)},
      {window(-1, 1)},
      {window(2, -1)},
      {window(-1, -1)},
      {window(kMax, 0)},
      {window(0, kMax)},
      {window(kMax, kMax)},
      {prefix(0)},
      {prefix(3)},
      {prefix(kMax)},
      {key_lengths({4})},
      {key_lengths({0, 5})},
      {documents(ids({0, 0, 1, 1, 1, 3, 3, 4, 5}), ids({0, 0, 0, 1, 1, 2, 3, 3, 3, 3, 5})), true,
       true},
      {documents(ids({0, 0, 1, 1, 0, 0, 1, 2, 0}), ids({4, 4, 4, 4, 0, 0, 0, 1, 1, 2, 2})), true,
       true},
      {documents(query_rows, unsorted_rows), false, true},
      {dense(drawn_mask({batch, kHeads, kAllQueries, kAllKeys}, 1)), false},
      {dense(drawn_mask({batch, 1, kAllQueries, kAllKeys}, 2)), false},
      {dense(drawn_mask({kAllKeys}, 3)), false},
      {dense(drawn_mask({kHeads, kAllQueries, 1}, 4)), true},
      {dense(drawn_mask({batch, kHeads, 1, 1}, 7)), true},
  };
  return result;
}

/// Returns the first position of an item, with its alignment offset.
ScorePosition place(bool packed, std::int64_t item, std::int64_t head, std::int64_t offset) {
  const std::int64_t query_start = packed ? 1 + item : 0;
  const std::int64_t key_start = packed ? 4 * item + 1 : 0;
  return {item, head, 0, 0, offset, query_start, key_start};
}

/// The visibility of every score of an item under a mask.
struct Truth {
  std::array<std::array<bool, kBlockKeys>, kBlockQueries> visible;

  Truth(const Mask& mask, const ScorePosition& item) {
    ScorePosition one = item;
    for (one.query = 0; one.query < kBlockQueries; ++one.query) {
      for (one.key = 0; one.key < kBlockKeys; ++one.key) {
        visible[at(one.query)][at(one.key)] = mask.visible(one);
      }
    }
  }

  Visibility of(const ScoreBlock& block) const {
    std::int64_t seen = 0;
    for (std::int64_t i = 0; i < block.queries; ++i) {
      for (std::int64_t j = 0; j < block.keys; ++j) {
        seen += visible[at(block.first.query + i)][at(block.first.key + j)] ? 1 : 0;
      }
    }
    if (seen == 0) return Visibility::kNone;
    return seen == block.queries * block.keys ? Visibility::kAll : Visibility::kSome;
  }
};

/// Calls visit(block) for every non-empty rectangle of an item.
void for_each_block(const ScorePosition& item, const auto& visit) {
  ScoreBlock block{item, 0, 0};
  for (block.first.query = 0; block.first.query < kBlockQueries; ++block.first.query) {
    for (block.first.key = 0; block.first.key < kBlockKeys; ++block.first.key) {
      for (block.queries = 1; block.first.query + block.queries <= kBlockQueries; ++block.queries) {
        for (block.keys = 1; block.first.key + block.keys <= kBlockKeys; ++block.keys) visit(block);
      }
    }
  }
}

/// Checks the invariants of every mask: blocks are never classified wrongly, key ranges contain all
/// visible keys, and runs are exact.
void check_against_each_score(const Mask& mask, const ScorePosition& item) {
  const Truth truth(mask, item);
  for_each_block(item, [&](const ScoreBlock& block) {
    const Visibility found = mask.classify(block);
    if (found == Visibility::kSome || found == truth.of(block)) return;
    ADD_FAILURE() << "block " << block.first.query << ", " << block.first.key << " + "
                  << block.queries << ", " << block.keys << ": " << testing::PrintToString(found)
                  << ", truly " << testing::PrintToString(truth.of(block));
  });
  ScorePosition row = item;
  std::vector<KeyRange> ranges(at(kBlockQueries));
  row.query = 0;
  mask.key_ranges(row, kBlockKeys, ranges);
  for (row.query = 0; row.query < kBlockQueries; ++row.query) {
    row.key = 0;
    EXPECT_EQ(ranges[at(row.query)], mask.key_range(row, kBlockKeys)) << row.query;
    const auto& seen = truth.visible[at(row.query)];
    for (row.key = 0; row.key <= kBlockKeys; ++row.key) {
      for (std::int64_t count = 0; row.key + count <= kBlockKeys; ++count) {
        const KeyRange range = mask.key_range(row, count);
        if (range.begin == range.end) {
          EXPECT_EQ(range, (KeyRange{0, 0, true}));
        } else {
          ASSERT_TRUE(row.key <= range.begin && range.begin < range.end &&
                      range.end <= row.key + count);
        }
        for (std::int64_t j = row.key; j < row.key + count; ++j) {
          const bool inside = range.begin <= j && j < range.end;
          EXPECT_TRUE(inside || !seen[at(j)]) << "query " << row.query << ", key " << j;
          EXPECT_TRUE(!inside || !range.exact || seen[at(j)])
              << "query " << row.query << ", key " << j;
        }
        std::array<std::uint8_t, kBlockKeys + 2> found;
        found.fill(9);
        mask.fill(row, count, &found[1]);
        EXPECT_TRUE(std::equal(&found[1], &found[at(1 + count)], &seen[at(row.key)]));
        EXPECT_TRUE(found[0] == 9 && found[at(1 + count)] == 9) << "written beyond the run";
      }
    }
  }
}

/// Calls visit(item) for every item, head and offset.
void for_each_item(bool packed, std::span<const std::int64_t> offsets, const auto& visit) {
  for (const std::int64_t offset : offsets) {
    for (std::int64_t item = 0; item < kItems; ++item) {
      for (std::int64_t head = 0; head < kHeads; ++head) visit(place(packed, item, head, offset));
    }
  }
}

constexpr std::array<std::int64_t, 10> kOffsets = {-kFar, -9, -5, -2, 0, 1, 2, 5, 9, kFar};
constexpr std::array<std::int64_t, 3> kFewOffsets = {-2, 1, kFar};

std::string trace(const Mask& mask, const ScorePosition& item) {
  return mask.to_string() + ", item " + std::to_string(item.batch) + ", head " +
         std::to_string(item.head) + ", offset " + std::to_string(item.offset);
}

TEST(MaskBlocks, EveryRuleAlone) {
  for (const bool packed : {false, true}) {
    for (const NamedMask& rule : rules(packed)) {
      for_each_item(packed, kOffsets, [&](const ScorePosition& item) {
        SCOPED_TRACE(trace(rule.mask, item));
        check_against_each_score(rule.mask, item);
        const Truth truth(rule.mask, item);
        for_each_block(item, [&](const ScoreBlock& block) {
          if (!rule.documents) {
            EXPECT_EQ(rule.mask.classify(block), truth.of(block));
          }
        });
        ScorePosition row = item;
        for (row.query = 0; rule.exact && row.query < kBlockQueries; ++row.query) {
          const KeyRange range = rule.mask.key_range(row, kBlockKeys);
          const bool unsorted = rule.documents && !range.exact;
          EXPECT_TRUE(range.exact || (unsorted && item.key_start < 4)) << "query " << row.query;
        }
      });
    }
  }
}

TEST(MaskBlocks, EmptyBlocksHaveNothingVisible) {
  for (const NamedMask& rule : rules(false)) {
    EXPECT_EQ(rule.mask.classify({{0, 0, 1, 2, 9}, 0, 3}), Visibility::kNone);
    EXPECT_EQ(rule.mask.classify({{0, 0, 1, 2, 9}, 3, 0}), Visibility::kNone);
  }
  EXPECT_EQ(Mask().classify({{}, 1, 1}), Visibility::kAll);
}

/// Combines two classifications: the three-valued truth table of `&` or `|`.
Visibility joined(bool both, Visibility a, Visibility b) {
  const Visibility decides = both ? Visibility::kNone : Visibility::kAll;
  const Visibility leaves = both ? Visibility::kAll : Visibility::kNone;
  if (a == decides || b == decides) return decides;
  return a == leaves && b == leaves ? leaves : Visibility::kSome;
}

KeyRange joined(bool both, const KeyRange& a, const KeyRange& b) {
  if (both) {
    const std::int64_t begin = std::max(a.begin, b.begin), end = std::min(a.end, b.end);
    return begin < end ? KeyRange{begin, end, a.exact && b.exact} : KeyRange{};
  }
  if (a.begin == a.end) return b;
  if (b.begin == b.end) return a;
  const std::int64_t begin = std::min(a.begin, b.begin), end = std::max(a.end, b.end);
  const bool touch = a.exact && b.exact && a.begin <= b.end && b.begin <= a.end;
  const bool a_is_all = a.exact && a.begin == begin && a.end == end;
  const bool b_is_all = b.exact && b.begin == begin && b.end == end;
  return {begin, end, touch || a_is_all || b_is_all};
}

TEST(MaskBlocks, EveryPair) {
  for (const bool packed : {false, true}) {
    const std::vector<NamedMask> all = rules(packed);
    for (const NamedMask& a : all) {
      for (const NamedMask& b : all) {
        for (const bool both : {false, true}) {
          const Mask mask = both ? a.mask & b.mask : a.mask | b.mask;
          for_each_item(packed, kFewOffsets, [&](const ScorePosition& item) {
            SCOPED_TRACE(trace(mask, item));
            check_against_each_score(mask, item);
            for_each_block(item, [&](const ScoreBlock& block) {
              EXPECT_EQ(mask.classify(block),
                        joined(both, a.mask.classify(block), b.mask.classify(block)));
            });
            ScorePosition row = item;
            for (row.query = 0; row.query < kBlockQueries; ++row.query) {
              EXPECT_EQ(mask.key_range(row, kBlockKeys),
                        joined(both, a.mask.key_range(row, kBlockKeys),
                               b.mask.key_range(row, kBlockKeys)));
            }
          });
          if (HasFailure()) return;  // one failing case is enough
        }
      }
    }
  }
}

TEST(MaskBlocks, TriplesAndTrees) {
  RandomState random(8);
  for (const bool packed : {false, true}) {
    const std::vector<NamedMask> all = rules(packed);
    const auto drawn = [&] {
      return all[at(random.randint(1, static_cast<std::int64_t>(all.size())))].mask;
    };
    for (int n = 0; n < 100; ++n) {
      const Mask a = drawn(), b = drawn(), c = drawn(), d = drawn();
      for (const Mask& mask : {(a & b) | c, (a | b) & c, a & b & c, a | b | c, (a | b) & (c | d)}) {
        const std::int64_t offset = random.randint(-6, 8);
        for_each_item(packed, std::array{offset}, [&](const ScorePosition& item) {
          SCOPED_TRACE(trace(mask, item));
          check_against_each_score(mask, item);
        });
      }
      if (HasFailure()) return;
    }
  }
}

TEST(MaskBlocks, RangesAtExtremeOffsets) {
  const auto range = [](const Mask& mask, std::int64_t query, std::int64_t offset) {
    return mask.key_range({0, 0, query, 0, offset}, 10);
  };
  const KeyRange all{0, 10, true}, none{};
  EXPECT_EQ(range(causal(), 0, kFar), all);
  EXPECT_EQ(range(causal(), 0, -kFar), none);
  EXPECT_EQ(range(causal(), 3, -kFar + kFar), (KeyRange{0, 4, true}));
  EXPECT_EQ(range(window(kMax, -1), 0, -kFar), all);
  EXPECT_EQ(range(window(kMax, -1), 0, kFar), all);
  EXPECT_EQ(range(window(-1, kMax), 0, -kFar), all);
  EXPECT_EQ(range(window(-1, kMax), 0, kFar), all);
  EXPECT_EQ(range(window(kMax, 2), 0, 0), (KeyRange{0, 3, true}));
  EXPECT_EQ(range(window(2, kMax), 0, 5), (KeyRange{3, 10, true}));
  EXPECT_EQ(range(window(kFar, kFar), 0, kFar), all);
  EXPECT_EQ(range(window(kFar - 4, 0), 0, kFar), (KeyRange{4, 10, true}));
  EXPECT_EQ(range(window(0, kFar + 4), 0, -kFar), (KeyRange{0, 5, true}));
  EXPECT_EQ(range(window(0, 0), 0, kFar), none);
  EXPECT_EQ(range(prefix(kMax), 0, 0), all);
}

// ---- Runs ---------------------------------------------------------------------------------------

TEST(MaskBlocks, LongRunsInChunks) {
  const std::int64_t length = 1000;
  const Tensor key_ids = RandomState(3).randint(0, 2, {length});
  const Tensor query_ids = ids({0, 1});
  const Tensor open = drawn_mask({length}, 2);
  const Mask parts[] = {causal(), window(300, 260), prefix(700), documents(query_ids, key_ids),
                        dense(open)};
  for (const Mask& a : parts) {
    for (const Mask& b : parts) {
      for (const Mask& mask : {a & b, a | b, (a | b) & (b | prefix(513))}) {
        for (const std::int64_t first : {0, 1, 255}) {
          for (const std::int64_t count : {255, 256, 257, 512, 745}) {
            std::vector<std::uint8_t> found(at(count + 1), 9);
            ScorePosition row{0, 0, 1, first, 520};
            mask.fill(row, count, found.data());
            std::int64_t wrong = 0;
            for (std::int64_t j = 0; j < count; ++j, ++row.key) {
              wrong += found[at(j)] == (mask.visible(row) ? 1 : 0) ? 0 : 1;
            }
            EXPECT_EQ(wrong, 0) << mask.to_string();
            EXPECT_EQ(found.back(), 9);
          }
        }
      }
    }
  }
}

// ---- Documents ----------------------------------------------------------------------------------

TEST(MaskBlocks, DocumentsCompareTheRangesOfIds) {
  RandomState random(11);
  const std::int64_t length = 300;  // several groups of 64, the last one partial
  Tensor rising(DType::kInt64, {2, length});
  for (std::int64_t i = 0; i < length; ++i) {
    rising.at<std::int64_t>({0, i}) = i / 37;
    rising.at<std::int64_t>({1, i}) = -i / 90;
  }
  Tensor runs = rising;  // in the first item, one id differs from all others
  for (std::int64_t i = 0; i < length; ++i) runs.at<std::int64_t>({0, i}) = i == 130 ? 7 : 1;
  const Tensor drawn = random.randint(0, 3, {2, length});
  std::array<int, 3> found{};
  const std::array<const Tensor*, 3> all = {&rising, &runs, &drawn};
  for (const Tensor* query_ids : all) {
    for (const Tensor* key_ids : all) {
      const Mask mask = documents(*query_ids, *key_ids);
      for (int n = 0; n < 400; ++n) {
        const std::int64_t item = random.randint(0, 2);
        const std::int64_t q = random.randint(0, length), k = random.randint(0, length);
        ScoreBlock block{
            {item, 0, q, k}, random.randint(1, length - q + 1), random.randint(1, length - k + 1)};
        if (n % 2 == 0) block.queries = std::min<std::int64_t>(block.queries, 5);
        if (n % 4 < 2) block.keys = std::min<std::int64_t>(block.keys, 5);
        if (n % 3 == 0) {  // the same block, relative to a sequence that starts inside the tensor
          block.first.query -= block.first.query_start = q / 2;
          block.first.key -= block.first.key_start = k / 2;
        }
        const auto bounds = [&](const Tensor& tensor, std::int64_t begin, std::int64_t count) {
          const auto part =
              tensor.span<std::int64_t>().subspan(at(item * length + begin), at(count));
          const auto [least, most] = std::minmax_element(part.begin(), part.end());
          return std::pair(*least, *most);
        };
        const auto of_q = bounds(*query_ids, q, block.queries);
        const auto of_k = bounds(*key_ids, k, block.keys);
        Visibility expected = Visibility::kSome;
        if (of_q.second < of_k.first || of_k.second < of_q.first) expected = Visibility::kNone;
        if (of_q == of_k && of_q.first == of_q.second) expected = Visibility::kAll;
        EXPECT_EQ(mask.classify(block), expected);
        ++found[static_cast<std::size_t>(expected)];
      }
    }
  }
  for (const int count : found) EXPECT_GT(count, 100);
}

TEST(MaskBlocks, DocumentsFindTheKeyRangeIfIdsAscend) {
  // Sequences of many lengths and positions, within ids that restart at 0 in several places.
  const std::int64_t length = 330;
  std::vector<std::int64_t> all(at(length));
  for (std::int64_t i = 0; i < length; ++i) {
    const std::int64_t since = i < 64 ? i : i < 128 ? i - 64 : i < 200 ? i - 128 : i - 200;
    all[at(i)] = since / 20;
  }
  const Tensor key_ids = ids(all);
  const Mask mask = documents(ids({0, 1, 2, 3, 4, 99, -1}), key_ids);
  int ascending = 0;
  for (std::int64_t start = 0; start < length; start += 3) {
    for (const std::int64_t kv_len : {0, 1, 2, 7, 63, 64, 65, 72, 73, 100, 130}) {
      if (start + kv_len > length) continue;
      const auto begin = all.begin() + start;
      const bool sorted = std::is_sorted(begin, begin + kv_len);
      ascending += sorted ? 1 : 0;
      for (std::int64_t query = 0; query < 7; ++query) {
        const KeyRange range = mask.key_range({0, 0, query, 0, 0, 0, start}, kv_len);
        if (!sorted) {
          EXPECT_EQ(range, (KeyRange{0, kv_len, false}));
          continue;
        }
        const std::int64_t id = query < 5 ? query : query == 5 ? 99 : -1;
        const auto first = std::find(begin, begin + kv_len, id) - begin;
        const auto count = std::count(begin, begin + kv_len, id);
        EXPECT_EQ(range, (count > 0 ? KeyRange{first, first + count, true} : KeyRange{}));
      }
    }
  }
  EXPECT_GT(ascending, 300);
}

TEST(MaskBlocks, DocumentsDetectADescentAnywhere) {
  const std::int64_t length = 200;
  for (std::int64_t fall = 1; fall < length; ++fall) {
    std::vector<std::int64_t> all(at(length), 1);
    std::fill(all.begin() + fall, all.end(), 0);
    const Mask mask = documents(ids({0}), ids(all));
    for (const std::int64_t start : {0, 1, 63, 64, 65, 128}) {
      for (const std::int64_t end : {64, 65, 127, 128, 129, 199, 200}) {
        if (end <= start) continue;
        const bool falls = start < fall && fall < end;
        EXPECT_EQ(mask.key_range({0, 0, 0, 0, 0, 0, start}, end - start).exact, !falls)
            << start << " to " << end << ", fall at " << fall;
      }
    }
  }
}

}  // namespace
}  // namespace fovea
