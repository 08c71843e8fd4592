// SPDX-License-Identifier: Apache-2.0
//
// Translators: both architectures learn, match forward token by token, and resume from a checkpoint
// to the same bits.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fovea/files.h"
#include "fovea/random.h"

#include "support/message_of.h"
#include "support/tensor_files.h"
#include "train/run_folder.h"
#include "train/search.h"
#include "train/trainer.h"

namespace fovea::train {
namespace {

using test::message_of;
using testing::HasSubstr;
using testing::StartsWith;

/// Returns pairs of random words and their reversals.
std::vector<Pair> reversed_words(std::int64_t count, std::uint64_t seed) {
  RandomState random(seed);
  std::vector<Pair> pairs;
  for (std::int64_t i = 0; i < count; ++i) {
    Pair pair{"", "", {}, i + 1};
    const std::int64_t length = random.randint(1, 6);
    for (std::int64_t c = 0; c < length; ++c) {
      pair.source += static_cast<char>('a' + random.randint(0, 4));
      pair.origins.push_back({{c, c + 1}, {{length - 1 - c, length - c}}});
    }
    pair.target = std::string(pair.source.rbegin(), pair.source.rend());
    pairs.push_back(pair);
  }
  return pairs;
}

Model new_model(Architecture architecture, std::uint64_t seed = 1) {
  Model model;
  const std::vector<std::string_view> letters = {"abcd"};
  model.source = model.target = Vocabulary::of(letters);
  model.options = {.architecture = architecture,
                   .source_symbols = model.source.size(),
                   .target_symbols = model.target.size(),
                   .max_length = 12,
                   .width = 16,
                   .heads = 2,
                   .inner = 32,
                   .encoder_layers = 1,
                   .decoder_layers = 2,
                   .dropout = 0.1,
                   .seed = seed};
  model.translator = make_translator(model.options);
  return model;
}

const Architecture kBoth[] = {Architecture::kTransformer, Architecture::kGru};

TrainingData words() { return {reversed_words(300, 1), reversed_words(20, 2)}; }

TEST(TrainTranslator, StepwiseCallsMatchForward) {
  for (const Architecture architecture : kBoth) {
    Model model = new_model(architecture);
    Translator& translator = *model.translator;
    const std::vector<Example> examples = {
        {model.source.tokens("abcd"), model.target.tokens("dcba")},
        {model.source.tokens("ab"), model.target.tokens("bacd")}};
    const Batch batch = make_batch(examples, std::vector<std::int64_t>{0, 1});
    const Tensor whole(TensorView(translator.forward(batch)));
    translator.begin(batch.source, batch.source_lengths, 2);
    for (std::int64_t t = 0; t < batch.target.extent(1); ++t) {
      Tensor tokens(DType::kInt64, {2});
      for (std::int64_t i = 0; i < 2; ++i) {
        tokens.at<std::int64_t>({i}) = batch.target.at<std::int64_t>({i, t});
      }
      const Tensor logits(TensorView(translator.step(tokens)));
      for_each_index(logits.shape(), [&](const Index& at) {
        EXPECT_NEAR(logits.value(at), whole.value({at[0], t, at[1]}), 100 * 0x1p-24)
            << architecture_name(architecture) << " at " << t;
      });
      const Tensor weights = translator.weights();
      ASSERT_EQ(weights.shape(), Shape({2, 5}));
      for (std::int64_t i = 0; i < 2; ++i) {
        double sum = 0.0;
        for (std::int64_t s = 0; s < 5; ++s) sum += weights.value({i, s});
        EXPECT_NEAR(sum, 1.0, 10 * 0x1p-24);
      }
      EXPECT_EQ(weights.value({1, 4}), 0.0) << "padding";
    }
  }
}

/// Returns the log-probability of a translation of one source, computed by forward.
double log_probability(Model& model, const std::vector<std::int64_t>& source,
                       const std::vector<std::int64_t>& tokens) {
  const std::vector<Example> examples = {{source, tokens}};
  const Batch batch = make_batch(examples, std::vector<std::int64_t>{0});
  const Tensor logits(TensorView(model.translator->forward(batch)));
  double sum = 0.0;
  for (std::int64_t t = 0; t < logits.extent(1); ++t) {
    double all = 0.0;
    for (std::int64_t s = kEnd; s < logits.extent(2); ++s) {
      all += std::exp(logits.value({0, t, s}));
    }
    sum += logits.value({0, t, tokens[static_cast<std::size_t>(t)]}) - std::log(all);
  }
  return sum;
}

TEST(TrainSearch, BeamsFindMoreLikelyTranslations) {
  int better = 0;
  for (const Architecture architecture : kBoth) {
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      Model model = new_model(architecture, seed);
      const std::vector<std::int64_t> source = model.source.tokens("abcab");
      const std::vector<std::vector<std::int64_t>> one = {source};
      const Translation greedy = translate_greedily(*model.translator, one, 8)[0];
      const Translation single = translate_with_beams(*model.translator, source, 1, 8);
      EXPECT_EQ(single.tokens, greedy.tokens);
      EXPECT_NEAR(single.log_probability, greedy.log_probability, 1e-4);
      const Translation beams = translate_with_beams(*model.translator, source, 4, 8);
      for (const Translation* const of : {&greedy, &beams}) {
        EXPECT_NEAR(of->log_probability, log_probability(model, source, of->tokens), 1e-4);
        EXPECT_EQ(of->weights.shape(), Shape({static_cast<std::int64_t>(of->tokens.size()), 6}));
      }
      const auto mean = [](const Translation& of) {
        return of.log_probability / static_cast<double>(of.tokens.size());
      };
      better += mean(beams) > mean(greedy) + 1e-6;
    }
  }
  EXPECT_GT(better, 0);
}

TEST(TrainSearch, BatchedSourcesMatchSingleOnes) {
  for (const Architecture architecture : kBoth) {
    Model model = new_model(architecture);
    std::vector<std::vector<std::int64_t>> sources;
    for (const char* const text : {"abcd", "a", "dd"}) sources.push_back(model.source.tokens(text));
    const std::vector<Translation> together = translate_greedily(*model.translator, sources, 9);
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const Translation alone =
          translate_greedily(*model.translator, std::span(&sources[i], 1), 9)[0];
      EXPECT_EQ(together[i].tokens, alone.tokens);
      EXPECT_NEAR(together[i].log_probability, alone.log_probability, 1e-4);
    }
    EXPECT_TRUE(translate_greedily(*model.translator, {}, 9).empty());
  }
}

TEST(TrainTrainer, BothArchitecturesLearn) {
  for (const Architecture architecture : kBoth) {
    const test::Folder folder;
    Model model = new_model(architecture);
    const TrainingData data = words();
    Trainer trainer(RunFolder(folder / "run"), model, data,
                    {.trainer = {.steps = 400,
                                 .batch = 32,
                                 .learning_rate = 1e-2,
                                 .warmup = 40,
                                 .validate_every = 100}},
                    false);
    std::vector<Validation> validations;
    double first = 0.0, last = 0.0;
    trainer.on_step = [&](const StepReport& report) {
      if (report.steps == 1) first = report.loss;
      last = report.loss;
      return true;
    };
    trainer.on_validation = [&](const Validation& found) { validations.push_back(found); };
    EXPECT_EQ(trainer.run(), TrainEnd::kOutOfSteps);
    EXPECT_EQ(validations.size(), 4u);
    EXPECT_LT(last, first / 2) << architecture_name(architecture);
    EXPECT_GE(validations.back().exact, 0.9) << architecture_name(architecture);

    // The run folder holds the best parameters.
    const RunFolder written(folder / "run");
    Model read = written.read_model();
    written.load_best(*read.translator);
    const auto best = std::ranges::max_element(validations, {}, &Validation::exact);
    EXPECT_EQ(validate(*read.translator, read.source, read.target, data.validation).exact,
              best->exact);
  }
}

const RunSettings kShort = {
    .trainer = {.steps = 30, .batch = 16, .warmup = 5, .validate_every = 7}};

/// Returns all parameters after a run that is stopped after each of `stops` and resumed.
std::vector<Tensor> trained(Architecture architecture, const std::vector<std::int64_t>& stops,
                            bool lose_what_is_not_saved = false) {
  const test::Folder folder;
  const TrainingData data = words();
  std::size_t next = 0;
  while (true) {
    Model model = new_model(architecture);
    const RunFolder run(folder / "run");
    Trainer trainer(run, model, data, kShort, run.has_checkpoint());
    class Killed {};
    trainer.on_step = [&](const StepReport& report) {
      if (next < stops.size() && report.steps == stops[next]) {
        ++next;
        if (lose_what_is_not_saved) throw Killed();
        return false;
      }
      return true;
    };
    try {
      if (trainer.run() == TrainEnd::kStopped) continue;
    } catch (const Killed&) {
      continue;
    }
    EXPECT_EQ(next, stops.size());
    std::vector<Tensor> parameters;
    for (const nn::Parameter& parameter : model.translator->model().parameters()) {
      parameters.push_back(parameter.value);
    }
    return parameters;
  }
}

TEST(TrainTrainer, ResumesToTheSameBits) {
  for (const Architecture architecture : kBoth) {
    const std::vector<Tensor> whole = trained(architecture, {});
    for (const bool lose : {false, true}) {
      const std::vector<Tensor> parts = trained(architecture, {3, 7, 20, 29}, lose);
      ASSERT_EQ(parts.size(), whole.size());
      for (std::size_t i = 0; i < whole.size(); ++i) {
        EXPECT_TRUE(test::same_tensor(parts[i], whole[i])) << i;
      }
    }
  }
}

TEST(TrainTrainer, StopsEarly) {
  const TrainingData data = words();
  const auto run = [&](const RunSettings& options) {
    const test::Folder folder;
    Model model = new_model(Architecture::kGru);
    Trainer trainer(RunFolder(folder / "run"), model, data, options, false);
    const TrainEnd end = trainer.run();
    return std::pair(end, trainer.state().steps);
  };
  RunSettings options = kShort;
  options.trainer.until = 0.0;
  EXPECT_EQ(run(options), std::pair(TrainEnd::kUntil, std::int64_t{7}));
  options = kShort;
  options.trainer.steps = 1000;
  options.trainer.learning_rate = 0.0;  // validation never improves
  options.trainer.patience = 2;
  EXPECT_EQ(run(options), std::pair(TrainEnd::kPatience, std::int64_t{21}));
}

TEST(TrainTrainer, AnEndedRunIsNotContinued) {
  const test::Folder folder;
  const RunFolder run(folder / "run");
  const TrainingData data = words();
  RunSettings options = kShort;
  options.trainer.steps = 1000;
  options.trainer.learning_rate = 0.0;  // validation never improves
  options.trainer.patience = 2;
  for (const bool resume : {false, true, true}) {
    Model model = new_model(Architecture::kGru);
    Trainer trainer(run, model, data, options, resume);
    EXPECT_EQ(trainer.run(), TrainEnd::kPatience);
    EXPECT_EQ(trainer.state().steps, 21);
  }
}

TEST(TrainTrainer, ReportsTheStepOfANonfiniteLoss) {
  const test::Folder folder;
  Model model = new_model(Architecture::kTransformer);
  const TrainingData data = words();
  Trainer trainer(RunFolder(folder / "run"), model, data, kShort, false);
  trainer.on_step = [&](const StepReport& report) {
    if (report.steps == 9) {
      nn::Parameter* const bias = model.translator->model().parameters().find("output.bias");
      set_value(bias->value, {0}, std::nan(""));
    }
    return true;
  };
  try {
    trainer.run();
    FAIL() << "no error";
  } catch (const Diverged& error) {
    EXPECT_THAT(error.what(),
                StartsWith("the loss is nan at step 10; the checkpoint of step 7 is kept"));
  }
  Model again = new_model(Architecture::kTransformer);
  Trainer resumed(RunFolder(folder / "run"), again, data, kShort, true);
  EXPECT_EQ(resumed.state().steps, 7);
}

/// A checkpoint made with other settings is rejected.
TEST(TrainTrainer, RejectsCheckpointsOfOtherSettings) {
  const test::Folder folder;
  const RunFolder run(folder / "run");
  const TrainingData data = words();
  {
    Model model = new_model(Architecture::kTransformer);
    Trainer trainer(run, model, data, kShort, false);
    trainer.run();
  }
  const auto resumed = [&](Architecture architecture, const TrainingData& with,
                           const RunSettings& options) {
    return message_of([&] {
      Model model = new_model(architecture);
      Trainer trainer(run, model, with, options, true);
    });
  };
  EXPECT_EQ(resumed(Architecture::kTransformer, data, kShort), "no error");
  EXPECT_THAT(resumed(Architecture::kGru, data, kShort), HasSubstr("expected a tensor \"encoder."));
  TrainingData other = data;
  other.training.pop_back();
  EXPECT_THAT(resumed(Architecture::kTransformer, other, kShort),
              HasSubstr("made with other pairs or settings"));
  RunSettings options = kShort;
  options.trainer.batch = 17;
  EXPECT_THAT(resumed(Architecture::kTransformer, data, options),
              HasSubstr("made with other pairs or settings"));

  // A truncated checkpoint causes an error, not a crash.
  const std::string path = folder / "run/checkpoint.safetensors";
  const auto size = std::filesystem::file_size(path);
  for (const std::uintmax_t rest : {size - 1, size / 2, std::uintmax_t{100}, std::uintmax_t{0}}) {
    std::filesystem::resize_file(path, rest);
    EXPECT_THAT(resumed(Architecture::kTransformer, data, kShort),
                HasSubstr("checkpoint.safetensors"));
  }
}

TEST(TrainRunFolder, InvalidModels) {
  const test::Folder folder;
  const RunFolder run(folder / "run");
  EXPECT_THROW(run.read_model(), IoError);
  Model model = new_model(Architecture::kGru);
  run.begin(model, {});
  const std::string good = test::read_file(folder / "run/model.json");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos);
    folder.write("run/model.json", text.replace(at, from.size(), to));
    const std::string message = message_of([&] { run.read_model(); });
    return message.substr(message.find("model.json"));
  };
  EXPECT_EQ(
      with("\"gru\"", "\"lstm\""),
      "model.json: model.architecture: expected one of \"transformer\", \"gru\", got the string "
      "\"lstm\"");
  EXPECT_EQ(with("\"width\": 16", "\"width\": 0"),
            "model.json: model.width: expected a whole number from 1 to 2147483648, got 0");
  EXPECT_EQ(with("\"width\": 16,", ""), "model.json: model: expected \"width\", got none");
  EXPECT_THAT(with("{", "["), StartsWith("model.json: "));
}

}  // namespace
}  // namespace fovea::train
