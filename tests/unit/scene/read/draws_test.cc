// SPDX-License-Identifier: Apache-2.0
//
// Random arrays of a scene, and direct queries, keys and values. The numbers are those of NumPy:
// numpy.random.seed(SEED), then one call per array.

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fovea/error.h"
#include "fovea/random.h"
#include "fovea/scene.h"

namespace fovea::scene {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<double> values(const Tensor& tensor) {
  const auto span = tensor.span<double>();
  return {span.begin(), span.end()};
}

std::vector<double> step(const Scene& scene, const std::string& name) {
  return values(trace_scene(scene).find(name)->values);
}

TEST(Draws, TokensComeFirst) {
  const Scene scene = parse_scene(R"({
    "tokens": {"draw": "randint", "low": 0, "high": 100, "count": 4}, "seed": 42,
    "embeddings": {"draw": "rand", "dim": 2}, "focus": "14"})");
  EXPECT_THAT(scene.words.tokens, ElementsAre(ElementsAre("51", "92", "14", "71")));
  EXPECT_TRUE(scene.words.numeric);
  EXPECT_FALSE(scene.batched);
  EXPECT_EQ(scene.focus->index, 2);
  EXPECT_THAT(values(scene.words.embeddings),
              ElementsAre(0.5986584841970366, 0.15601864044243652, 0.15599452033620265,
                          0.05808361216819946, 0.8661761457749352, 0.6011150117432088,
                          0.7080725777960455, 0.020584494295802447));
  EXPECT_THAT(to_json(trace_scene(scene)), HasSubstr("\"tokens\": [51, 92, 14, 71]"));
}

TEST(Draws, TokensOfTheSourceAreDrawnWithIt) {
  const Scene scene = parse_scene(R"({
    "text": "a b", "seed": 42, "embeddings": {"draw": "rand", "dim": 1},
    "source": {"tokens": {"draw": "randint", "high": 9, "count": 2},
               "embeddings": {"draw": "randn", "dim": 1}}})");
  RandomState numpy(42);
  const Tensor words = numpy.rand({2, 1});
  const std::string first = std::to_string(numpy.randint(0, 9));
  const std::string second = std::to_string(numpy.randint(0, 9));
  const Tensor source = numpy.randn({2, 1});
  EXPECT_EQ(values(scene.words.embeddings), values(words));
  EXPECT_THAT(scene.source->tokens, ElementsAre(ElementsAre(first, second)));
  EXPECT_EQ(values(scene.source->embeddings), values(source));
}

TEST(Draws, ListedArraysTakeEachOthersPlaces) {
  const auto drawn = [](const std::string& order) {
    return parse_scene(R"({"text": "a b", "seed": 7, "embeddings": {"draw": "rand", "dim": 2},
      "projections": {"draw": "randn", "dim": 1},
      "score": {"kind": "general", "weights": {"draw": "randint", "high": 9}})" +
                       order + "}");
  };
  RandomState numpy(7);
  const Tensor embeddings = numpy.rand({2, 2});
  const Tensor key = numpy.randn({2, 1});
  const Tensor query = numpy.randn({2, 1});
  const Tensor value = numpy.randn({2, 1});
  const double weight = static_cast<double>(numpy.randint(0, 9));
  for (const char* order : {R"(, "order": ["W_K", "W_Q"])", R"(, "order": ["W_K", "W_Q", "W_V"])",
                            R"(, "order": ["embeddings", "key_weights", "query_weights"])"}) {
    const Scene scene = drawn(order);
    EXPECT_EQ(values(scene.words.embeddings), values(embeddings)) << order;
    EXPECT_EQ(values(scene.projections->key), values(key)) << order;
    EXPECT_EQ(values(scene.projections->query), values(query)) << order;
    EXPECT_EQ(values(scene.projections->value), values(value)) << order;
    EXPECT_EQ(std::get<reference::GeneralScore>(scene.score_kind).weights->value({0, 0}), weight);
  }
  const Scene usual = drawn("");
  EXPECT_EQ(values(usual.projections->query), values(key));
  EXPECT_EQ(values(drawn(R"(, "order": ["W_Q", "W_K", "W_V"])").projections->value),
            values(usual.projections->value));
}

TEST(Draws, EmbeddingsCanBeDrawnLast) {
  const Scene scene = parse_scene(R"({"text": "a b", "seed": 7,
    "embeddings": {"draw": "rand", "dim": 2}, "projections": {"draw": "rand", "dim": 1},
    "order": ["W_Q", "W_K", "W_V", "embeddings"]})");
  RandomState numpy(7);
  EXPECT_EQ(values(scene.projections->query), values(numpy.rand({2, 1})));
  EXPECT_EQ(values(scene.projections->key), values(numpy.rand({2, 1})));
  EXPECT_EQ(values(scene.projections->value), values(numpy.rand({2, 1})));
  EXPECT_EQ(values(scene.words.embeddings), values(numpy.rand({2, 2})));
}

TEST(Draws, ARowByWordDependsOnSeedAndWordOnly) {
  const auto rows = [](const std::string& text, const std::string& draw) {
    return values(parse_scene(R"({"text": ")" + text + R"(", "seed": 42, "embeddings": {"dim": 3,
      "by": "word", )" + draw +
                              "}}")
                      .words.embeddings);
  };
  EXPECT_THAT(rows("Cat sat", R"("draw": "randn")"),
              ElementsAre(1.161362721253354, -1.3663022944474925, 0.10641008737053749,
                          -0.387637582955877, 0.3221405277104242, 0.07532937524654465));
  EXPECT_THAT(rows("sat CAT", R"("draw": "randint", "high": 5)"), ElementsAre(3, 0, 3, 2, 2, 1));
  // The seed and the checksum are added modulo 2^32.
  EXPECT_THAT(
      values(parse_scene(R"({"text": "Cat sat", "seed": 4294967295,
                "embeddings": {"draw": "rand", "dim": 2, "by": "word"}})")
                 .words.embeddings),
      ElementsAre(0.12183500224576171, 0.5198000400546077, 0.5937867404184124, 0.8163274398612693));
}

TEST(Draws, ByWordLeavesTheStreamToOthers) {
  const Scene scene = parse_scene(R"({"tokens": {"draw": "randint", "high": 2, "count": 6},
    "seed": 1, "embeddings": {"draw": "rand", "dim": 2, "by": "word"},
    "projections": {"draw": "rand"}})");
  RandomState numpy(1);
  for (const std::string& token : scene.words.tokens[0]) {
    EXPECT_EQ(token, std::to_string(numpy.randint(0, 2)));
  }
  EXPECT_EQ(values(scene.projections->query), values(numpy.rand({2, 2})));
  // Equal tokens, drawn before, have equal rows.
  const auto row = [&](std::int64_t i) { return scene.words.embeddings.value({0, i, 0}); };
  for (std::int64_t i = 0; i < 6; ++i) {
    for (std::int64_t j = 0; j < 6; ++j) {
      EXPECT_EQ(row(i) == row(j), scene.words.tokens[0][static_cast<std::size_t>(i)] ==
                                      scene.words.tokens[0][static_cast<std::size_t>(j)]);
    }
  }
}

TEST(DirectInputs, AreTheFirstSteps) {
  const Scene scene = parse_scene(R"({"text": "a b", "query": [[1, 2], [3, 4]],
    "key": [[1, 0], [0, 1]], "value": [[1, 2, 3], [4, 5, 6]], "score": {"scale": 1}})");
  EXPECT_FALSE(scene.words.embeddings.defined());
  const Trace trace = trace_scene(scene);
  std::vector<std::string> names;
  for (const Step& one : trace.steps) names.push_back(one.name);
  EXPECT_THAT(names,
              ElementsAre("tokens", "query", "key", "value", "focus.tokens", "focus.query",
                          "focus.key", "focus.value", "focus.scores", "focus.shifted_scores",
                          "focus.exponentials", "focus.exponential_sums", "focus.weights",
                          "focus.row_sums", "focus.context", "scores", "shifted_scores",
                          "exponentials", "exponential_sums", "weights", "row_sums", "context"));
  EXPECT_THAT(step(scene, "scores"), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(trace.find("context")->shape, (Shape{2, 3}));
  EXPECT_EQ(trace.find("query")->formula, "one row of numbers per word");
}

TEST(DirectInputs, EqualTheProjectedEmbeddings) {
  const Trace projected = trace_scene(parse_scene(R"({"text": "a b", "seed": 3, "heads": 2,
    "kv_heads": 1, "embeddings": {"draw": "rand", "dim": 4}, "projections": {"draw": "randn"},
    "mask": "causal"})"));
  Scene scene = projected.scene;
  const auto flat = [&](const char* name, std::int64_t heads) {
    // [heads, length, dim] to [1, length, heads * dim]
    const Tensor& given = projected.find(name)->values;
    const std::int64_t dim = given.extent(given.rank() - 1);
    Tensor rows(DType::kFloat64, {1, 2, heads * dim});
    for_each_index(Shape{heads, 2, dim}, [&](const Index& at) {
      rows.at<double>({0, at[1], at[0] * dim + at[2]}) = given.value(at);
    });
    return rows;
  };
  scene.direct = DirectInputs{flat("query", 2), flat("key", 1), flat("value", 1), "", "", ""};
  scene.projections.reset();
  scene.words.embeddings = {};
  for (const char* name : {"query", "key", "value", "scores", "weights", "context"}) {
    EXPECT_EQ(step(scene, name), values(projected.find(name)->values)) << name;
  }
}

TEST(DirectInputs, CanBeDrawnAndOrdered) {
  const Scene scene = parse_scene(R"({"text": "a", "seed": 3, "source": {"text": "x y"},
    "query": {"draw": "rand", "dim": 2}, "key": {"draw": "rand", "dim": 2},
    "value": {"draw": "rand", "dim": 1}, "order": ["value", "query", "key"]})");
  EXPECT_THAT(step(scene, "value"), ElementsAre(0.5507979025745755, 0.7081478226181048));
  EXPECT_THAT(step(scene, "query"), ElementsAre(0.2909047389129443, 0.510827605197663));
  EXPECT_THAT(step(scene, "key"), ElementsAre(0.8929469543476547, 0.8962930889334381,
                                              0.12558531046383625, 0.20724287813818676));
  EXPECT_EQ(scene.direct->query_drawn, "rand, seed 3");
  const Trace trace = trace_scene(scene);
  EXPECT_EQ(trace.steps[1].name, "source_tokens");
  EXPECT_EQ(trace.find("focus.key"), nullptr);
}

TEST(DirectInputs, CanBeABatch) {
  const Scene scene = parse_scene(R"({"tokens": [["a"], ["b"]], "query": [[[1]], [[2]]],
    "key": [[[3]], [[4]]], "value": [[[5]], [[6]]], "focus": [-1, 0]})");
  EXPECT_TRUE(scene.batched);
  EXPECT_THAT(step(scene, "scores"), ElementsAre(3, 8));
  EXPECT_THAT(step(scene, "focus.context"), ElementsAre(6));
}

TEST(DirectInputs, EveryOutputTellsThem) {
  const Trace trace = trace_scene(parse_scene(R"({"text": "a b", "query": [[1, 2], [3, 4]],
    "key": [[1, 0], [0, 1]], "value": [[5], [6]], "notes": {"tokens": "Two words.", "key": "Keys."}})"));
  const std::string text = to_text(trace);
  EXPECT_THAT(text, HasSubstr("2 words; dot-product scores, scaled by 1/sqrt(head_dim), given "
                              "queries, keys and values"));
  EXPECT_THAT(text, HasSubstr("Two words."));
  EXPECT_THAT(text, HasSubstr("Keys."));
  EXPECT_THAT(text, testing::Not(HasSubstr("mbedding")));
  EXPECT_THAT(to_markdown(trace), HasSubstr("Queries, keys and values"));
  const std::string page = to_html(trace);
  EXPECT_THAT(page, HasSubstr("What it asks for, what it can be found by, and what it passes on."));
  EXPECT_THAT(page, testing::Not(HasSubstr("<mi>X</mi>")));
}

TEST(DirectInputs, HaveNoProjectionsToReplace) {
  const Scene scene = parse_scene(R"({"text": "a", "query": [[1]], "key": [[1]], "value": [[1]]})");
  const Tensor one = Tensor::matrix({{1}});
  EXPECT_THROW(with_projections(scene, {one, one, one, "", "", ""}), InvalidArgument);
  const Scene other =
      parse_scene(R"({"text": "a b", "seed": 1, "embeddings": {"draw": "randn", "dim": 2}})");
  EXPECT_THAT(
      [&] {
        with_projections(other, {Tensor(DType::kFloat64, {2, 2}), {}, {}, "", "", ""});
      },
      testing::ThrowsMessage<InvalidArgument>("projections.key: expected a matrix, got none"));
}

TEST(WithProjections, KeepsWhatWasDrawnInAnotherOrder) {
  const Scene scene = parse_scene(R"({
    "tokens": {"draw": "randint", "high": 9, "count": 2}, "seed": 7,
    "embeddings": {"draw": "rand", "dim": 2}, "projections": {"draw": "rand"},
    "source": {"tokens": [["x"]], "embeddings": {"draw": "rand", "dim": 2}},
    "score": {"kind": "general", "weights": {"draw": "rand"}},
    "order": ["W_Q", "W_K", "W_V", "embeddings", "source", "tokens"]})");
  const Scene changed = with_projections(scene, *scene.projections);
  const Scene again = parse_scene(changed.json);
  EXPECT_EQ(again.words.tokens, scene.words.tokens);
  EXPECT_EQ(values(again.words.embeddings), values(scene.words.embeddings));
  EXPECT_EQ(values(again.source->embeddings), values(scene.source->embeddings));
  EXPECT_EQ(step(again, "context"), step(scene, "context"));
}

}  // namespace
}  // namespace fovea::scene
