// SPDX-License-Identifier: Apache-2.0
//
// Which weights `fovea map` and `fovea tile` are about, and options that both have.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "fovea/mask.h"

#include "attend_arguments.h"
#include "map_compute.h"

namespace fovea::cli {

/// As they were typed.
struct PlaceArguments {
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::string rows;
  std::string cols;
};

/// Some queries and keys of one head.
struct MapPlace {
  std::int64_t batch = 0;
  std::int64_t head = 0;
  Span queries;
  Span keys;
};

/// Those of attend, but for what holds for weights alone.
void add_weight_tensor_options(CLI::App& app, AttendArguments& to);
/// --batch, --head, --rows and --cols, under the heading that is the app's at the moment.
void add_place_options(CLI::App& app, PlaceArguments& to);

/// Throws InvalidArgument for what is not there, and where nothing is.
MapPlace place_in(const PlaceArguments& arguments, const ProblemShape& shape);

/// A number that is all of `text`.
std::optional<std::int64_t> whole_number(std::string_view text);

/// ".png", in small letters.
std::string ending_of(const std::string& path);
/// Throws UsageError for another ending; `words` lists them.
void require_ending(const char* option, const std::string& path,
                    const std::vector<std::string>& endings, const char* words);

}  // namespace fovea::cli
