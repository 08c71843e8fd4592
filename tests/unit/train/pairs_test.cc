// SPDX-License-Identifier: Apache-2.0
//
// Pairs of texts: reading, vocabularies, batches, and metrics of translations.

#include "train/pairs.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/message_of.h"
#include "support/tensor_files.h"
#include "train/batches.h"
#include "train/metrics.h"
#include "train/vocabulary.h"

namespace fovea::train {
namespace {

using test::message_of;
using testing::ElementsAre;
using testing::EndsWith;
using testing::StartsWith;

std::vector<Pair> read(const std::string& text) {
  const test::Folder folder;
  const std::string path = folder.write("pairs.tsv", text);
  try {
    return read_pairs(path);
  } catch (const InvalidArgument& error) {
    // Removes the folder from the message, as its name differs between runs.
    const std::string message = error.what();
    throw InvalidArgument(message.substr(message.find("pairs.tsv")));
  }
}

TEST(TrainPairs, AreReadLineByLine) {
  const std::vector<Pair> pairs =
      read("ein Haus\ta house\r\nñ\tn\t0-1=0-1\nab\tcd\t0-1=1-2+0-1,1-2=0-2");
  ASSERT_EQ(pairs.size(), 3u);
  EXPECT_EQ(pairs[0].source, "ein Haus");
  EXPECT_EQ(pairs[0].target, "a house");
  EXPECT_TRUE(pairs[0].origins.empty());
  EXPECT_EQ(pairs[1].line, 2);
  ASSERT_EQ(pairs[2].origins.size(), 2u);
  EXPECT_EQ(pairs[2].origins[0].target, Range(0, 1));
  EXPECT_THAT(pairs[2].origins[0].source, ElementsAre(Range(1, 2), Range(0, 1)));
}

TEST(TrainPairs, AByteOrderMarkIsNotPartOfTheFirstText) {
  const std::string mark = "\xEF\xBB\xBF";
  const std::vector<Pair> pairs = read(mark + "the\tle\n" + mark + "a\tun\n");
  ASSERT_EQ(pairs.size(), 2u);
  EXPECT_EQ(pairs[0].source, "the");
  EXPECT_EQ(pairs[1].source, mark + "a");
  EXPECT_EQ(message_of([&] { read(mark); }), "pairs.tsv: expected pairs, got nothing");
}

TEST(TrainPairs, ErrorsNameTheLine) {
  const std::pair<const char*, const char*> kCases[] = {
      {"", "pairs.tsv: expected pairs, got nothing"},
      {"a\tb\n\n", "pairs.tsv:2: expected two or three columns with tabs between, got 1"},
      {"a\tb\tc\td", "pairs.tsv:1: expected two or three columns with tabs between, got 4"},
      {"\tb", "pairs.tsv:1: expected a source before the first tab, got nothing"},
      {"a\t", "pairs.tsv:1: expected a target after the first tab, got nothing"},
      {"a\t\xff", "pairs.tsv:1: expected UTF-8"},
      {"a\tb\tx", "pairs.tsv:1: expected an origin such as 0-4=20-24, got \"x\""},
      {"a\tb\t0-1=0-1=0-1",
       "pairs.tsv:1: expected an origin such as 0-4=20-24, got \"0-1=0-1=0-1\""},
      {"é\tb\t0-1=0-2",
       "pairs.tsv:1: expected a range within the 1 characters of the source, such as 0-1, got "
       "\"0-2\""},
      {"a\tb\t0-2=0-1",
       "pairs.tsv:1: expected a range within the 1 characters of the target, such as 0-1, got "
       "\"0-2\""},
      {"a\tb\t-1-1=0-1",
       "pairs.tsv:1: expected a range within the 1 characters of the target, such as 0-1, got "
       "\"-1-1\""},
      {"a\tb\t1-1=0-1",
       "pairs.tsv:1: expected a range within the 1 characters of the target, such as 0-1, got "
       "\"1-1\""},
      {"a\tb\t0=0-1",
       "pairs.tsv:1: expected a range within the 1 characters of the target, such as 0-1, got "
       "\"0\""},
      {"a\tb\t0-99999999999999999999=0-1",
       "pairs.tsv:1: expected a range within the 1 characters of the target, such as 0-1, got "
       "\"0-99999999999999999999\""},
  };
  for (const auto& [text, message] : kCases) {
    EXPECT_EQ(message_of([&, text = text] { read(text); }), message);
  }
  EXPECT_THROW(read_pairs("/nowhere/pairs.tsv"), IoError);
}

TEST(TrainPairs, HaveAFingerprint) {
  const auto of = [](const std::string& text) { return fingerprint(read(text)); };
  EXPECT_EQ(of("a\tb\n"), of("a\tb\t0-1=0-1"));
  for (const char* const other : {"a\tc", "b\tb", "a\tb\na\tb", "ab\tb", "a\tbb"}) {
    EXPECT_NE(of("a\tb"), of(other)) << other;
  }
}

TEST(TrainVocabulary, NumbersCharactersInOrder) {
  const std::vector<std::string_view> texts = {"bä", "a b"};
  const Vocabulary vocabulary = Vocabulary::of(texts);
  EXPECT_THAT(vocabulary.symbols(), ElementsAre(" ", "a", "b", "ä"));
  EXPECT_EQ(vocabulary.size(), 7);
  EXPECT_THAT(vocabulary.tokens("ba"), ElementsAre(5, 4, kEnd));
  EXPECT_THAT(vocabulary.tokens(""), ElementsAre(kEnd));
  EXPECT_EQ(vocabulary.text(std::vector<std::int64_t>{6, 3, kEnd, 5}), "ä ");
  EXPECT_EQ(message_of([&] { vocabulary.tokens("ba\tc"); }),
            "expected characters that the model was trained on, got \"\\t\" in \"ba\\tc\"");
  EXPECT_EQ(message_of([] {
              Vocabulary twice({"a", "b", "a"});
            }),
            "symbols: expected each once, got \"a\" again");
}

std::vector<Example> examples(std::int64_t count) {
  std::vector<Example> result;
  for (std::int64_t i = 0; i < count; ++i) {
    result.push_back({std::vector<std::int64_t>(static_cast<std::size_t>(1 + i * 7 % 13), 3 + i),
                      std::vector<std::int64_t>(static_cast<std::size_t>(1 + i * 5 % 7), 3 + i)});
  }
  return result;
}

TEST(TrainBatches, EachEpochHasEachExampleOnceInItsOwnOrder) {
  const std::vector<Example> all = examples(101);
  const auto first = batches_of_epoch(all, 4, 7, 0);
  EXPECT_EQ(first, batches_of_epoch(all, 4, 7, 0));
  EXPECT_NE(first, batches_of_epoch(all, 4, 7, 1));
  EXPECT_NE(first, batches_of_epoch(all, 4, 8, 0));
  std::multiset<std::int64_t> seen;
  const auto padding = [&](std::span<const std::int64_t> numbers) {
    const Batch batch = make_batch(all, numbers);
    return batch.source.size() + batch.target.size() - batch.tokens;
  };
  std::int64_t sorted = 0, unsorted = 0;
  for (const auto& batch : first) {
    EXPECT_LE(batch.size(), 4u);
    seen.insert(batch.begin(), batch.end());
    sorted += padding(batch);
  }
  EXPECT_EQ(seen.size(), 101u);
  EXPECT_EQ(std::set<std::int64_t>(seen.begin(), seen.end()).size(), 101u);
  std::vector<std::int64_t> in_order(all.size());
  std::iota(in_order.begin(), in_order.end(), 0);
  for (std::size_t i = 0; i < all.size(); i += 4) {
    unsorted += padding(std::span(in_order).subspan(i, std::min<std::size_t>(4, all.size() - i)));
  }
  EXPECT_LT(sorted, unsorted / 2);  // batches group examples of similar length
  EXPECT_EQ(batches_of_epoch({}, 4, 7, 0).size(), 0u);
}

TEST(TrainBatches, ArePadded) {
  const std::vector<Example> all = {{{5, 6, kEnd}, {7, kEnd}}, {{8, kEnd}, {9, 10, kEnd}}};
  const std::vector<std::int64_t> numbers = {1, 0};
  const Batch batch = make_batch(all, numbers);
  const auto rows = [](const Tensor& tensor) {
    const auto span = tensor.span<std::int64_t>();
    return std::vector<std::int64_t>(span.begin(), span.end());
  };
  EXPECT_THAT(rows(batch.source), ElementsAre(8, kEnd, kPadding, 5, 6, kEnd));
  EXPECT_THAT(batch.source_lengths, ElementsAre(2, 3));
  EXPECT_THAT(rows(batch.target), ElementsAre(kBegin, 9, 10, kBegin, 7, kPadding));
  EXPECT_THAT(rows(batch.next), ElementsAre(9, 10, kEnd, 7, kEnd, kPadding));
  EXPECT_EQ(batch.tokens, 10);
}

TEST(TrainMetrics, ChrfMatchesSacreBleu) {
  // Values of corpus_chrf in sacreBLEU 2.6.0.
  using Texts = std::vector<std::string>;
  EXPECT_NEAR(chrf(Texts{"the cat sat on the mat", "2024-03-04"},
                   Texts{"a cat sat on a mat", "2024-04-03"}),
              58.24371462284675, 1e-12);
  EXPECT_NEAR(chrf(Texts{"abc"}, Texts{"abd"}), 38.888888888888886, 1e-12);
  EXPECT_NEAR(chrf(Texts{"ñandú é"}, Texts{"ñandu é"}), 37.77777777777778, 1e-12);
  EXPECT_EQ(chrf(Texts{"ab"}, Texts{"ab"}), 100.0);
  EXPECT_EQ(chrf(Texts{"ab"}, Texts{"cd"}), 0.0);
  EXPECT_EQ(chrf(Texts{""}, Texts{"cd"}), 0.0);
  EXPECT_EQ(chrf({}, {}), 0.0);
}

TEST(TrainMetrics, AlignedCountsCharactersThatAttendToTheirOrigin) {
  Translation translation;
  translation.tokens = {5, 6, kEnd};
  translation.weights =
      convert(Tensor::matrix({{0.1, 0.7, 0.2}, {0.6, 0.3, 0.1}, {0.0, 0.0, 1.0}}), DType::kFloat32);
  Pair pair{"ab", "cd", {{{0, 1}, {{1, 2}}}, {{1, 2}, {{1, 2}}}}, 1};
  Aligned aligned;
  aligned.add(translation, pair);
  EXPECT_EQ(aligned.counted, 2);
  EXPECT_EQ(aligned.right, 1);
  EXPECT_EQ(aligned.share(), 0.5);
  pair.origins = {{{0, 2}, {{0, 1}, {1, 2}}}};
  aligned.add(translation, pair);
  EXPECT_EQ(aligned.right, 3);
  EXPECT_EQ(Aligned{}.share(), 0.0);
}

}  // namespace
}  // namespace fovea::train
