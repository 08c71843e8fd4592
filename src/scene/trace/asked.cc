// SPDX-License-Identifier: Apache-2.0
//
// Finds the numbers that answer questions (asked.h).

#include "scene/trace/asked.h"

#include <string_view>

namespace fovea::scene {

std::vector<AskedNumber> asked_numbers(const TraceModel& model) {
  constexpr std::string_view kFocusPrefix = "focus.";
  std::vector<AskedNumber> asked;
  for (const Question& question : model.scene().questions) {
    std::string_view name = question.step;
    const bool focus = name.starts_with(kFocusPrefix);
    if (focus) name.remove_prefix(kFocusPrefix.size());
    const Step* step = model.find(name);
    const StepLayout layout = model.layout(*step);
    const Focus chosen = model.scene().focus.value_or(Focus{});
    const int own = step->values.rank() - static_cast<int>(layout.has_batch) -
                    static_cast<int>(layout.has_heads);

    // A step of the focus has no indices of the batch item and of the query.
    auto next = question.index.begin();
    const auto take = [&](bool present) {
      return present && next != question.index.end() ? *next++ : std::int64_t{0};
    };
    const std::int64_t item = focus ? chosen.item : take(layout.has_batch);
    const std::int64_t head = take(layout.has_heads);
    const std::int64_t query = focus ? chosen.index : take(true);
    const bool planes = own == 3;
    const std::int64_t row = planes ? take(true) : query;
    const std::int64_t col = take(own >= 2);
    const std::int64_t plane = planes ? query : 0;
    asked.push_back({&question,
                     step,
                     {item, head, plane, row, col},
                     model.numbers(*step).text(layout.at(item, head, plane, row, col))});
  }
  return asked;
}

}  // namespace fovea::scene
