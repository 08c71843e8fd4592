// SPDX-License-Identifier: Apache-2.0
//
// Analyses that use the tokens of recordings: token scores, and the same attention in two
// recordings.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "fovea/analysis.h"
#include "fovea/mask.h"

#include "support/exactness.h"
#include "support/message_of.h"
#include "support/random_problem.h"
#include "support/recorded.h"

namespace fovea::test {
namespace {

constexpr std::int64_t kTokens = 20;

class RecordedTokens : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("fovea-tokens-" + std::to_string(::getpid()));
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  Recording write(const std::string& name, const RecordedAttention& attention,
                  const std::vector<TokenList>& tokens) const {
    RecordingWriter writer(path(name));
    writer.add(attention);
    for (const TokenList& list : tokens) writer.add(list);
    writer.finish();
    return Recording::open(path(name));
  }

 private:
  std::filesystem::path folder_;
};

std::vector<std::int64_t> some_ids(std::int64_t step) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < kTokens; ++i) ids.push_back(i * step % 7);
  return ids;
}

/// Returns a list with a text for each id.
TokenList list_of(const std::string& name, const std::vector<std::int64_t>& ids, bool with_ids) {
  TokenList list = {.name = name};
  for (const std::int64_t id : ids) list.texts.push_back("word " + std::to_string(id));
  if (with_ids) list.ids = ids;
  return list;
}

RecordedAttention with_tokens(const std::vector<std::string>& names) {
  RecordedAttention attention =
      recorded(stored_problem({2, 4, 2, kTokens, kTokens}, 16, 4, InputKind::kNormal, 1),
               {.mask = causal()});
  attention.query_tokens = attention.key_tokens = names;
  return attention;
}

TEST_F(RecordedTokens, ScoresCompareIdsOrTexts) {
  Tensor ids(DType::kInt64, {2, kTokens});
  for (std::int64_t i = 0; i < kTokens; ++i) {
    for (std::int64_t batch = 0; batch < 2; ++batch) {
      ids.at<std::int64_t>({batch, i}) = some_ids(batch + 1)[static_cast<std::size_t>(i)];
    }
  }
  const RecordedAttention attention = with_tokens({"one", "two"});
  const TokenScores expected = token_scores(attention, ids, ids);
  for (const bool with_ids : {true, false}) {
    const Recording recording =
        write("run", attention,
              {list_of("one", some_ids(1), with_ids), list_of("two", some_ids(2), false)});
    const std::optional<TokenScores> found = token_scores(recording, recording.attentions()[0]);
    ASSERT_TRUE(found.has_value());
    EXPECT_TRUE(same_bits(found->induction, expected.induction));
    EXPECT_TRUE(same_bits(found->duplicate, expected.duplicate));
    EXPECT_TRUE(same_bits(found->previous, expected.previous));
    EXPECT_TRUE(same_bits(found->repeated, expected.repeated));
  }
}

TEST_F(RecordedTokens, NoScoresWithoutTokensOfTheSameText) {
  const auto has_scores = [&](const RecordedAttention& attention) {
    const Recording recording = write("run", attention, {list_of("one", some_ids(1), true)});
    return token_scores(recording, recording.attentions()[0]).has_value();
  };
  RecordedAttention attention = with_tokens({"one"});
  EXPECT_TRUE(has_scores(attention));
  attention.kind = AttentionKind::kCross;
  EXPECT_FALSE(has_scores(attention));
  attention.kind = AttentionKind::kDecoder;
  attention.key_tokens = {};
  EXPECT_FALSE(has_scores(attention));
  attention = with_tokens({"one"});
  attention.query = TensorRef(convert(attention.query, DType::kFloat64));
  attention.key = TensorRef(convert(attention.key, DType::kFloat64));
  attention.lse = TensorRef(convert(attention.lse, DType::kFloat64));
  attention.value = {};
  EXPECT_FALSE(has_scores(attention));
}

TEST_F(RecordedTokens, CounterpartsHaveTheSameTokens) {
  const RecordedAttention attention = with_tokens({"one", "two"});
  const TokenList one = list_of("one", some_ids(1), true), two = list_of("two", some_ids(2), true);
  const Recording first = write("first", attention, {one, two});
  const auto message = [&](const Recording& second) {
    return message_of([&] { find_counterpart(first.attentions()[0], first, second); });
  };
  // Ids are compared if both have them.
  const Recording same = write("same", attention, {list_of("one", some_ids(1), false), two});
  EXPECT_EQ(&find_counterpart(first.attentions()[0], first, same), &same.attentions()[0]);
  RecordedAttention untold = attention;
  untold.query_tokens = untold.key_tokens = {};
  EXPECT_EQ(message(write("untold", untold, {})), "no error");

  TokenList other = two;
  other.texts[5] = "a\ncat";
  EXPECT_EQ(message(write("text", attention, {one, other})),
            path("text") + ": expected the query tokens of " + path("first") +
                ", got \"a\\ncat\" instead of \"word 3\" at 5");
  other = two;
  other.ids[6] = 99;
  EXPECT_EQ(message(write("id", attention, {one, other})),
            path("id") + ": expected the query tokens of " + path("first") +
                ", got \"word 5\" (id 99) instead of \"word 5\" (id 5) at 6");
  RecordedAttention renamed = untold;
  renamed.name = "other";
  renamed.layer = 3;
  EXPECT_EQ(
      message(write("name", renamed, {})),
      path("name") + ": expected the attention layers.0 as " + path("first") + " has, got layer 3");
}

}  // namespace
}  // namespace fovea::test
