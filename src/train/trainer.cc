// SPDX-License-Identifier: Apache-2.0
//
// Trains a translator (trainer.h).

#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "fovea/error.h"
#include "fovea/nn/cross_entropy.h"

#include "core/fail.h"
#include "train/batches.h"
#include "train/metrics.h"

namespace fovea::train {
namespace {

constexpr std::size_t kValidationBatch = 100;

nn::Schedule schedule_of(const TrainerOptions& options) {
  return {.peak = options.learning_rate,
          .kind = nn::Schedule::Kind::kCosine,
          .warmup = options.warmup,
          .total = options.steps};
}

/// Returns a hash of the pairs and settings that determine the results of further steps.
std::int64_t fingerprint(const TrainingData& data, const TrainerOptions& options) {
  std::vector<Pair> settings(1);
  settings[0].source = fmt::format("{} {} {} {} {} {} {} {}", options.steps, options.batch,
                                   options.learning_rate, options.warmup, options.weight_decay,
                                   options.clip, options.label_smoothing, options.validate_every);
  return static_cast<std::int64_t>(fingerprint(data.training) ^ fingerprint(data.validation) * 3 ^
                                   fingerprint(settings) * 5);
}

}  // namespace

Validation validate(Translator& translator, const Vocabulary& source, const Vocabulary& target,
                    const std::vector<Pair>& pairs) {
  translator.model().evaluate();
  Validation result;
  std::vector<std::string> references;
  Aligned aligned;
  std::int64_t exact = 0;
  for (std::size_t begin = 0; begin < pairs.size(); begin += kValidationBatch) {
    const auto part =
        std::span(pairs).subspan(begin, std::min(kValidationBatch, pairs.size() - begin));
    std::vector<std::vector<std::int64_t>> sources;
    std::size_t longest = 0;
    for (const Pair& pair : part) {
      sources.push_back(source.tokens(pair.source));
      longest = std::max(longest, target.tokens(pair.target).size());
    }
    // An output longer than every target cannot be exact.
    const auto most =
        std::min(static_cast<std::int64_t>(longest) + 1, translator.options().max_length);
    const std::vector<Translation> translations = translate_greedily(translator, sources, most);
    for (std::size_t i = 0; i < part.size(); ++i) {
      result.texts.push_back(target.text(translations[i].tokens));
      references.push_back(part[i].target);
      if (result.texts.back() == part[i].target) {
        ++exact;
        aligned.add(translations[i], part[i]);
      }
    }
    if (begin == 0) result.first = translations[0];
  }
  const auto count = static_cast<double>(std::max<std::size_t>(1, pairs.size()));
  result.exact = static_cast<double>(exact) / count;
  result.chrf = chrf(result.texts, references);
  result.aligned = aligned.share();
  result.counted = aligned.counted;
  return result;
}

void check_pairs(const Model& model, const std::vector<Pair>& pairs, const std::string& file) {
  for (const Pair& pair : pairs) {
    try {
      const std::size_t source = model.source.tokens(pair.source).size();
      const std::size_t length = std::max(source, model.target.tokens(pair.target).size());
      if (static_cast<std::int64_t>(length) > model.options.max_length) {
        fail("expected at most {} characters, got {}", model.options.max_length - 1, length - 1);
      }
    } catch (const InvalidArgument& error) {
      fail("{}:{}: {}", file, pair.line, error.what());
    }
  }
}

Trainer::Trainer(RunFolder folder, Model& model, const TrainingData& data,
                 const RunSettings& settings, bool resume)
    : folder_(std::move(folder)),
      model_(model),
      data_(data),
      options_(settings.trainer),
      adam_(model.translator->model().parameters(),
            {.beta2 = 0.98, .weight_decay = options_.weight_decay}),
      schedule_(schedule_of(options_)) {
  const std::int64_t now = fingerprint(data, options_);
  if (resume) {
    state_ = folder_.load_checkpoint(adam_);
    saved_ = state_.steps;
    if (state_.fingerprint != now) {
      fail("{}: the checkpoint was made with other pairs or settings; resume with the same ones",
           folder_.path());
    }
  }
  check_pairs(model, data.validation, data.validation_file);
  for (const Pair& pair : data.training) {
    examples_.push_back({model.source.tokens(pair.source), model.target.tokens(pair.target)});
  }
  if (!resume) {
    state_.fingerprint = now;
    folder_.begin(model, settings);
    save();  // last, so that a folder with a checkpoint has all other files as well
  }
}

void Trainer::save() {
  folder_.save_checkpoint(adam_, state_);
  saved_ = state_.steps;
}

void Trainer::validate_and_save() {
  Validation found = validate(*model_.translator, model_.source, model_.target, data_.validation);
  found.steps = state_.steps;
  // chrF2 breaks ties between equal shares of exact matches.
  const double score = found.exact + found.chrf * 1e-6;
  found.best = score > state_.best;
  if (found.best) {
    state_.best = score;
    state_.best_step = state_.steps;
    state_.worse = 0;
    folder_.save_best(*model_.translator);
  } else {
    ++state_.worse;
  }
  // Before the checkpoint is saved: if the run ends between the two, the resumed run validates this
  // step again. In the other order, the resumed run would leave it out.
  if (on_validation) on_validation(found);
  save();
}

bool Trainer::step(const std::vector<std::int64_t>& numbers) {
  Translator& translator = *model_.translator;
  const Batch batch = make_batch(examples_, numbers);
  translator.model().train(static_cast<std::uint32_t>(state_.steps));
  nn::CrossEntropy loss({.ignored = kPadding, .label_smoothing = options_.label_smoothing});
  const double value = loss.forward(translator.forward(batch), batch.next);
  if (!std::isfinite(value)) {
    throw Diverged(fmt::format(
        "the loss is {} at step {}; the checkpoint of step {} is kept in {}: "
        "a smaller learning rate may help",
        std::abs(value), state_.steps + 1, saved_, folder_.path()));  // without the sign of NaN
  }
  translator.model().parameters().zero_gradients();
  translator.backward(loss.backward());
  nn::clip_gradients(translator.model().parameters(), options_.clip);
  const double rate = schedule_.rate(state_.steps);
  adam_.step(rate);
  ++state_.steps;
  return !on_step || on_step({state_.steps, value, rate, batch.tokens});
}

std::optional<TrainEnd> Trainer::end_by_validation() const {
  if (state_.best >= options_.until) return TrainEnd::kUntil;
  if (options_.patience > 0 && state_.worse >= options_.patience) return TrainEnd::kPatience;
  return std::nullopt;
}

TrainEnd Trainer::run() {
  // A resumed run may have ended before.
  if (const auto end = end_by_validation()) return *end;
  const auto pairs = static_cast<std::int64_t>(examples_.size());
  std::vector<std::vector<std::int64_t>> batches;
  std::int64_t epoch = -1;
  const std::int64_t per_epoch = static_cast<std::int64_t>(
      batches_of_epoch(examples_, options_.batch, model_.options.seed, 0).size());
  while (state_.steps < options_.steps && pairs > 0) {
    if (state_.steps / per_epoch != epoch) {
      epoch = state_.steps / per_epoch;
      batches = batches_of_epoch(examples_, options_.batch, model_.options.seed, epoch);
    }
    const bool goes_on = step(batches[static_cast<std::size_t>(state_.steps % per_epoch)]);
    const bool last = state_.steps == options_.steps;
    if (last || state_.steps % options_.validate_every == 0) {
      validate_and_save();
      if (const auto end = end_by_validation()) return *end;
    }
    if (!goes_on) {
      save();
      return TrainEnd::kStopped;
    }
  }
  return TrainEnd::kOutOfSteps;
}

}  // namespace fovea::train
