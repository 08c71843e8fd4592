// SPDX-License-Identifier: Apache-2.0
//
// Recordings written and read again (fovea/recording.h): options, tensors, tokens, parts, and what
// happens to the file.

#include "fovea/recording.h"

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "fovea/attention.h"
#include "fovea/error.h"
#include "fovea/random.h"
#include "fovea/weights.h"

#include "support/message_of.h"
#include "support/tensor_files.h"

namespace fovea {
namespace {

using test::message_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::int64_t kBatch = 2, kHeads = 4, kKvHeads = 2, kQueries = 7, kKeys = 9, kDim = 8;

/// A folder for the files of one test.
class RecordingFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("fovea-recording-" + std::to_string(::getpid()));
    std::filesystem::create_directory(folder_);
    path_ = (folder_ / "run.safetensors").string();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }

  Recording write(const RecordedAttention& attention, const RecordingOptions& options = {}) const {
    RecordingWriter writer(path_, options);
    writer.add(attention);
    writer.finish();
    return Recording::open(path_);
  }

  std::filesystem::path folder_;
  std::string path_;
};

Tensor gaussian(const Shape& shape, std::uint32_t seed = 1, DType type = DType::kFloat32) {
  RandomState random(seed);
  return convert(random.randn(shape), type);
}

RecordedAttention attention_with(const AttentionOptions& options, DType type = DType::kFloat32) {
  RecordedAttention attention{.name = "layers.0", .options = options};
  attention.query = gaussian({kBatch, kHeads, kQueries, kDim}, 1, type);
  attention.key = gaussian({kBatch, kKvHeads, kKeys, kDim}, 2, type);
  attention.value = gaussian({kBatch, kKvHeads, kKeys, kDim + 1}, 3, type);
  Tensor lse(DType::kFloat32, {kBatch, kHeads, kQueries});
  Tensor context(type, {kBatch, kHeads, kQueries, kDim + 1});
  attention_forward(attention.query, attention.key, attention.value, options,
                    {.context = context, .lse = lse});
  attention.lse = std::move(lse);
  return attention;
}

Tensor weights_of(const RecordedAttention& attention) {
  const ProblemShape shape = attention.shape();
  Tensor all(DType::kFloat32, {shape.batch, shape.q_heads, shape.q_len, shape.kv_len});
  for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
    for (std::int64_t head = 0; head < shape.q_heads; ++head) {
      attention_weights(
          attention.inputs(),
          {.batch = batch, .head = head, .queries = shape.q_len, .keys = shape.kv_len},
          attention.options, all.view()[batch][head]);
    }
  }
  return all;
}

void expect_same(const TensorView& a, const TensorView& b) {
  ASSERT_EQ(a.shape(), b.shape());
  ASSERT_EQ(a.dtype(), b.dtype());
  for_each_index(a.shape(), [&](const Index& at) { ASSERT_EQ(a.value(at), b.value(at)); });
}

Tensor ids(const Shape& shape, std::int64_t period) {
  Tensor result(DType::kInt64, shape);
  std::int64_t number = 0;
  for (std::int64_t& each : result.span<std::int64_t>()) each = number++ / period % 3;
  return result;
}

Tensor some_visible() {
  Tensor visible(DType::kBool, {kHeads, 1, kKeys});
  int number = 0;
  for (bool& each : visible.span<bool>()) each = number++ % 4 != 1;
  return visible;
}

std::vector<AttentionOptions> many_options() {
  const Tensor query_ids = ids({kBatch, kQueries}, 2), key_ids = ids({kBatch, kKeys}, 3);
  const Tensor table = gaussian({6, kHeads}, 5), bias = gaussian({kQueries, kKeys}, 6);
  std::vector<AttentionOptions> all(1);
  all.push_back({.mask = causal()});
  all.push_back({.mask = window(3, 0) & causal(), .alignment = Alignment::top_left()});
  all.push_back({.mask = causal() | prefix(2)});
  all.push_back({.mask = documents(query_ids, key_ids) & window(-1, 2)});
  all.push_back({.mask = key_lengths({5, 9}) & (causal() | documents(query_ids, key_ids))});
  all.push_back({.mask = dense(some_visible()) & key_lengths({8})});
  all.push_back({.mask = (causal() | (prefix(1) & (window(1, 1) | prefix(3)))) & prefix(8)});
  all.push_back({.alignment = Alignment::offset(-3)});
  all.push_back({.mask = causal(), .alignment = Alignment::offsets({1, 4})});
  all.push_back({.score = {.scale = 0.3, .softcap = 2.5}});
  all.push_back({.score = {.bias = Tensor(bias)}});
  all.push_back({.score = {.alibi = Alibi{}}});
  all.push_back({.score = {.alibi = Alibi{{0.5, 0.25, 0.1, 1.0 / 3.0}}}});
  all.push_back({.score = {.relative = RelativeTable{Tensor(table), false, 20}}});
  all.push_back(
      {.score = {.sinks = {0.5, -1.25, 1.0 / 3.0, -std::numeric_limits<double>::infinity()}}});
  return all;
}

TEST_F(RecordingFile, KeepsEveryOption) {
  for (const AttentionOptions& options : many_options()) {
    SCOPED_TRACE(options.mask.to_string());
    const RecordedAttention attention = attention_with(options);
    const Recording recording = write(attention);
    ASSERT_EQ(recording.attentions().size(), 1u);
    const RecordedAttention& read = recording.attentions()[0];
    EXPECT_EQ(read.options.mask.to_string(), options.mask.to_string());
    expect_same(read.query, attention.query);
    expect_same(read.key, attention.key);
    expect_same(read.value, attention.value);
    expect_same(read.lse, attention.lse);
    expect_same(weights_of(read), weights_of(attention));
  }
}

TEST_F(RecordingFile, KeepsTheDescription) {
  RecordedAttention attention = attention_with({.mask = causal()});
  attention.layer = 13;
  attention.kind = AttentionKind::kCross;
  attention.heads = {1, 2, 5, 7};
  attention.query_tokens = {"answer", "other answer"};
  attention.key_tokens = {"question"};
  std::vector<std::string> words;
  for (std::int64_t i = 0; i < kKeys; ++i)
    words.push_back("é\n" + std::string(static_cast<std::size_t>(i), 'x'));
  RecordingWriter writer(path_, {.model = "a model", .source = "two texts \"quoted\""});
  writer.add(attention);
  writer.add(TokenList{.name = "question", .texts = words, .grid_rows = 3, .grid_columns = 3});
  words.resize(kQueries);
  writer.add(TokenList{.name = "answer", .ids = {7, -1, 5, 4, 3, 2, 1}, .texts = words});
  writer.add(TokenList{.name = "other answer", .texts = words});
  writer.finish();
  EXPECT_THAT(files(), ElementsAre("run.safetensors"));

  const Recording recording = Recording::open(path_);
  EXPECT_EQ(recording.model(), "a model");
  EXPECT_EQ(recording.source(), "two texts \"quoted\"");
  EXPECT_THAT(recording.written_by(), testing::StartsWith("fovea "));
  const RecordedAttention& read = recording.find("layers.0");
  EXPECT_EQ(&recording.find(13), &read);
  EXPECT_EQ(&recording.find(13, AttentionKind::kCross), &read);
  EXPECT_EQ(read.kind, AttentionKind::kCross);
  EXPECT_THAT(read.heads, ElementsAre(1, 2, 5, 7));
  EXPECT_EQ(read.model_head(2), 5);
  ASSERT_EQ(recording.tokens().size(), 3u);
  EXPECT_EQ(recording.key_tokens(read, 1)->name, "question");
  EXPECT_EQ(recording.key_tokens(read, 1)->texts[3], "é\nxxx");
  EXPECT_EQ(recording.key_tokens(read, 1)->grid_columns, 3);
  EXPECT_THAT(recording.key_tokens(read)->ids, IsEmpty());
  EXPECT_EQ(recording.query_tokens(read, 1)->name, "other answer");
  EXPECT_THAT(recording.query_tokens(read, 0)->ids, ElementsAre(7, -1, 5, 4, 3, 2, 1));
  EXPECT_TRUE(is_recording(path_));
  EXPECT_FALSE(is_recording(path_ + ".none"));
}

TEST_F(RecordingFile, StoresAnotherType) {
  const RecordedAttention attention = attention_with({.mask = causal()});
  const Recording recording = write(attention, {.store = DType::kBFloat16});
  const RecordedAttention& read = recording.attentions()[0];
  EXPECT_EQ(read.lse->dtype(), DType::kFloat32);
  expect_same(read.lse, attention.lse);
  expect_same(read.query, convert(attention.query, DType::kBFloat16));
  expect_same(read.value, convert(attention.value, DType::kBFloat16));
  // docs/recordings.md: a weight changes by at most a factor exp(2 d), where d is the largest
  // change of a score: 2^-8 of the sum of |scale q_i k_i|, as both operands are rounded to 8 bits.
  const Tensor exact = weights_of(attention), rounded = weights_of(read);
  const double scale = 1.0 / std::sqrt(static_cast<double>(kDim));
  for_each_index(exact.shape(), [&](const Index& at) {
    double change = 0.0;
    for (std::int64_t d = 0; d < kDim; ++d) {
      change += std::abs(attention.query->value({at[0], at[1], at[2], d}) *
                         attention.key->value({at[0], at[1] / 2, at[3], d}));
    }
    change *= scale * (std::ldexp(1.0, -7) + std::ldexp(1.0, -16));
    EXPECT_LE(std::abs(rounded.value(at) - exact.value(at)),
              exact.value(at) * std::expm1(change) + 1e-6);
  });
}

TEST_F(RecordingFile, JoinsParts) {
  const AttentionOptions options{.mask = causal() & window(4, 0)};
  const RecordedAttention whole = attention_with(options);
  // Of every tensor, the rows [begin, end) along the length.
  const auto rows = [](const TensorRef& of, std::int64_t begin, std::int64_t end) -> TensorRef {
    Shape shape = of->shape();
    shape[2] = end - begin;
    Tensor part(of->dtype(), shape);
    for_each_index(shape, [&](const Index& at) {
      Index from = at;
      from[2] += begin;
      set_value(part, at, of->value(from));
    });
    return part;
  };
  const auto part = [&](std::int64_t q0, std::int64_t q1, std::int64_t k0, std::int64_t k1) {
    RecordedAttention cut = whole;
    cut.query = rows(whole.query, q0, q1);
    cut.lse = rows(whole.lse, q0, q1);
    cut.key = rows(whole.key, k0, k1);
    cut.value = rows(whole.value, k0, k1);
    return cut;
  };
  RecordingWriter writer(path_);
  writer.add(part(0, 3, 0, 5));
  writer.append(part(3, 4, 5, 6));
  writer.append(part(4, 4, 6, 8));
  writer.append(part(4, 7, 8, 9));
  writer.describe(whole);
  writer.finish();
  const Recording recording = Recording::open(path_);
  const RecordedAttention& read = recording.attentions()[0];
  expect_same(read.query, whole.query);
  expect_same(read.key, whole.key);
  expect_same(read.value, whole.value);
  expect_same(read.lse, whole.lse);
  expect_same(weights_of(read), weights_of(whole));
}

TEST_F(RecordingFile, StoredTypesMustHoldTheNumbers) {
  RecordedAttention attention = attention_with({});
  Tensor query(attention.query.view());
  query.at<float>({0, 1, 2, 3}) = -1e6f;
  attention.query = std::move(query);
  EXPECT_EQ(message_of([&] { write(attention, {.store = DType::kFloat16}); }),
            "\"layers.0.query\": expected numbers that fit float16, got -1000000");
  EXPECT_EQ(message_of([&] { write(attention, {.store = DType::kBFloat16}); }), "no error");
}

/// Layers with the same documents, biases and tables share one tensor.
TEST_F(RecordingFile, StoresEqualOptionsOnce) {
  RecordingWriter writer(path_);
  for (int layer = 0; layer < 3; ++layer) {
    RecordedAttention attention =
        attention_with({.mask = documents(ids({kQueries}, 2), ids({kKeys}, 2)),
                        .score = {.bias = gaussian({kQueries, kKeys}, layer == 2 ? 8 : 7)}});
    attention.name = "layers." + std::to_string(layer);
    writer.add(attention);
  }
  writer.finish();
  std::vector<std::string> names;
  const TensorFile file = TensorFile::open(path_);
  for (const TensorInfo& info : file.tensors()) {
    if (info.name.find("documents") != std::string::npos ||
        info.name.find("bias") != std::string::npos) {
      names.push_back(info.name);
    }
  }
  EXPECT_THAT(names, testing::UnorderedElementsAre("layers.0.documents", "layers.0.documents.2",
                                                   "layers.0.bias", "layers.2.bias"));
}

/// Above 16 MB, the file is completed in place.
TEST_F(RecordingFile, LargeFilesAreCompletedInPlace) {
  RecordedAttention attention{.name = "a", .options = {.mask = causal()}};
  constexpr std::int64_t kLength = 20000;
  attention.query = gaussian({1, 4, kLength, 32}, 1);
  attention.key = gaussian({1, 4, kLength, 32}, 2);
  attention.lse = gaussian({1, 4, kLength}, 3);
  attention.query_tokens = {"text"};
  RecordingWriter writer(path_);
  writer.add(attention);
  writer.add(TokenList{.name = "text", .texts = std::vector<std::string>(kLength, "word")});
  const auto bytes = static_cast<std::uintmax_t>(writer.bytes());
  writer.finish();
  EXPECT_THAT(files(), ElementsAre("run.safetensors"));
  EXPECT_EQ(bytes, 4u * 4 * kLength * (32 + 32 + 1));
  EXPECT_LE(static_cast<double>(std::filesystem::file_size(path_)),
            1.01 * static_cast<double>(bytes) + 12.0 * kLength);
  const Recording recording = Recording::open(path_);
  expect_same(recording.attentions()[0].query, attention.query);
  expect_same(recording.attentions()[0].lse, attention.lse);
  EXPECT_EQ(recording.tokens()[0].texts[kLength - 1], "word");
}

TEST_F(RecordingFile, AnUnfinishedFileIsRemoved) {
  {
    RecordingWriter writer(path_);
    writer.add(attention_with({}));
    EXPECT_EQ(files().size(), 1u);  // the temporary one
    EXPECT_FALSE(std::filesystem::exists(path_));
  }
  EXPECT_THAT(files(), IsEmpty());
}

TEST_F(RecordingFile, AFinishedWriterTakesNothing) {
  const std::string refusal = "recording: expected one that is not finished and was not moved";
  RecordingWriter writer(path_);
  writer.add(attention_with({}));
  RecordingWriter moved = std::move(writer);
  EXPECT_EQ(message_of([&] { writer.finish(); }), refusal);
  EXPECT_EQ(writer.bytes(), 0);
  moved.finish();
  EXPECT_EQ(message_of([&] { moved.finish(); }), refusal);
  EXPECT_EQ(message_of([&] { moved.add(attention_with({})); }), refusal);
  EXPECT_EQ(message_of([&] { moved.append(attention_with({})); }), refusal);
  EXPECT_EQ(Recording::open(path_).attentions().size(), 1u);
}

TEST_F(RecordingFile, EmptyProblemsAndRecordings) {
  {
    RecordingWriter writer(path_);
    writer.finish();
  }
  EXPECT_THAT(Recording::open(path_).attentions(), IsEmpty());
  RecordedAttention attention{.name = "nothing"};
  attention.query = Tensor(DType::kFloat32, {1, 2, 0, 4});
  attention.key = Tensor(DType::kFloat32, {1, 1, 0, 4});
  attention.lse = Tensor(DType::kFloat32, {1, 2, 0});
  EXPECT_EQ(write(attention).attentions()[0].shape().q_len, 0);
}

TEST_F(RecordingFile, WriterRefusesWhatDoesNotFit) {
  const RecordedAttention good = attention_with({.mask = causal()});
  const auto refusal = [&](const auto& change) {
    RecordedAttention attention = good;
    change(attention);
    return message_of([&] {
      RecordingWriter writer(path_);
      writer.add(attention);
      writer.finish();
    });
  };
  EXPECT_EQ(refusal([](auto& a) { a.name = ""; }), "name: expected a name, got an empty one");
  EXPECT_EQ(refusal([](auto& a) { a.lse = {}; }),
            "\"layers.0.lse\": expected a tensor, got nothing");
  EXPECT_EQ(refusal([](auto& a) {
              a.lse = gaussian({kBatch, kHeads, kQueries + 1});
            }),
            "\"layers.0.lse\": expected float32 [2, 4, 7], one per query, got float32 [2, 4, 8]");
  EXPECT_EQ(refusal([](auto& a) {
              a.key = gaussian({kBatch, 3, kKeys, kDim});
            }),
            "\"layers.0.key\": expected a number of heads that divides 4, the heads of the query, "
            "got float32 [2, 3, 9, 8]");
  EXPECT_EQ(refusal([](auto& a) {
              a.heads = {0, 1};
            }),
            "\"layers.0\": heads: expected 4, one per head of the query, got 2");
  EXPECT_EQ(refusal([](auto& a) { a.query_tokens = {"text"}; }),
            "\"layers.0\": query_tokens: expected the name of a token list, got \"text\"");
  EXPECT_THAT(refusal([](auto& a) { a.options.mask = documents(ids({3}, 1)); }),
              HasSubstr("documents: expected query ids of shape [7] or [2, 7], got [3]"));
  EXPECT_THAT(refusal([](auto& a) { a.options.dropout.probability = 0.5; }),
              HasSubstr("dropout: expected none in a recording, got 0.5"));
  EXPECT_EQ(refusal([](auto& a) { a.options.score.scale = 1e39; }),
            "scale: expected a number that float32 holds, got 1e+39");
  EXPECT_EQ(message_of([&] {
              RecordingWriter writer(path_);
              writer.add(TokenList{.name = "text", .texts = {"fine", "\xff\xfe"}});
            }),
            "tokens: expected UTF-8, got \"\\xff\\xfe\" for token 1");
  // What the reader would not accept.
  EXPECT_EQ(refusal([](auto& a) { a.name = "\xff"; }), "name: expected UTF-8, got \"\\xff\"");
  EXPECT_EQ(refusal([](auto& a) { a.layer = -1; }), "layer: expected 0 to 1099511627776, got -1");
  EXPECT_EQ(refusal([](auto& a) {
              a.heads = {-1, 0, 1, 2};
            }),
            "\"layers.0\": heads: expected numbers from 0 to 1099511627776, got -1");
  EXPECT_EQ(refusal([](auto& a) {
              a.heads = {0, 1, 2, INT64_MAX};
            }),
            "\"layers.0\": heads: expected numbers from 0 to 1099511627776, got "
            "9223372036854775807");
  EXPECT_EQ(message_of([&] { RecordingWriter(path_, {.model = "\xc3"}); }),
            "model: expected UTF-8, got \"\\xc3\"");
  EXPECT_EQ(message_of([&] { RecordingWriter(path_, {.source = "a\xc3("}); }),
            "source: expected UTF-8, got \"a\\xc3(\"");
  const auto refused_tokens = [&](const TokenList& tokens) {
    return message_of([&] {
      RecordingWriter writer(path_);
      writer.add(TokenList{.name = "twice"});
      writer.add(tokens);
    });
  };
  EXPECT_EQ(refused_tokens({.name = "twice"}),
            "tokens: expected a name used once, got \"twice\" again");
  EXPECT_EQ(refused_tokens({.name = "\xff"}), "tokens: expected UTF-8, got \"\\xff\"");
  EXPECT_EQ(refused_tokens({.name = "a", .ids = {1, 2}, .texts = {"x"}}),
            "tokens: expected one id per text (1), got 2");
  EXPECT_EQ(refused_tokens({.name = "a", .texts = {"x", "y"}, .grid_rows = 2}),
            "\"a\": expected a grid of 1 to 2 patches, as many as there are tokens, got 2 x 0");
  EXPECT_EQ(
      refused_tokens({.name = "a", .texts = {"x", "y", "z"}, .grid_rows = 2, .grid_columns = 2}),
      "\"a\": expected a grid of 1 to 3 patches, as many as there are tokens, got 2 x 2");
  EXPECT_EQ(message_of([&] {
              RecordingWriter writer(path_);
              writer.append(good);
            }),
            "name: expected an attention that was added, got \"layers.0\"");
  EXPECT_THAT(files(), IsEmpty());
  EXPECT_THROW(RecordingWriter(folder_.string() + "/none/run.safetensors"), OutputError);
  for (const DType store : {DType::kFloat64, DType::kInt64}) {
    EXPECT_EQ(
        message_of([&] { RecordingWriter(path_, {.store = store}); }),
        fmt::format("store: expected float32, bfloat16 or float16, got {}", dtype_name(store)));
  }
  EXPECT_THAT(files(), IsEmpty());
  const std::string pipe = folder_.string() + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT([&] { RecordingWriter{pipe}; },
              testing::ThrowsMessage<OutputError>(
                  pipe + ": expected the path of a file, got a device or pipe"));
}

TEST_F(RecordingFile, FindListsWhatThereIs) {
  RecordingWriter writer(path_);
  for (const int layer : {0, 1, 2, 4}) {
    RecordedAttention attention = attention_with({});
    attention.layer = layer;
    attention.name = "layers." + std::to_string(layer);
    writer.add(attention);
    attention.kind = AttentionKind::kCross;
    attention.name += ".cross";
    if (layer == 4) writer.add(attention);
  }
  writer.finish();
  const Recording recording = Recording::open(path_);
  EXPECT_EQ(recording.find(4, AttentionKind::kCross).name, "layers.4.cross");
  EXPECT_EQ(message_of([&] { recording.find(3); }),
            path_ + ": expected a layer with attention (layers 0, 1, 2, 4), got 3");
  EXPECT_EQ(message_of([&] { recording.find(0, AttentionKind::kCross); }),
            path_ + ": expected a layer with cross attention (layers 0, 1, 2, 4), got 0");
  EXPECT_EQ(
      message_of([&] { recording.find(4); }),
      path_ + ": expected a layer with one attention, got 4, which has layers.4, layers.4.cross");
  EXPECT_EQ(recording.find("1").layer, 1);
  EXPECT_EQ(recording.find("cross").name, "layers.4.cross");
  EXPECT_EQ(message_of([&] { recording.find("layer.1"); }),
            path_ +
                ": expected the name of an attention (layers.0, layers.1, layers.2, layers.4, "
                "layers.4.cross), got \"layer.1\"");
}

}  // namespace
}  // namespace fovea
