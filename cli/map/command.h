// SPDX-License-Identifier: Apache-2.0
//
// `fovea map`: the weights of one head, or of all together, as a picture, and what is told of their
// rows.

#pragma once

#include <cstdint>
#include <string>

#include <CLI/CLI.hpp>

#include "fovea/scene.h"

#include "cli/map/compute.h"
#include "cli/map/place.h"
#include "cli/problem/inputs.h"
#include "cli/problem/rules.h"
#include "picture/colors.h"
#include "picture/words.h"

namespace fovea::cli {

class MapCommand {
 public:
  explicit MapCommand(CLI::App& parent);
  MapCommand(const MapCommand&) = delete;
  MapCommand& operator=(const MapCommand&) = delete;

  bool chosen() const { return app_->parsed(); }
  /// Reads, computes, draws and writes; returns the exit code. Throws UsageError, InvalidArgument,
  /// IoError and OutputError.
  int run() const;

 private:
  void add_map_options();
  void add_look_options();
  void add_output_options();
  bool given(const std::string& option) const { return app_->count(option) > 0; }
  /// Throws UsageError for arguments that do not go together or name no format.
  void check_usage() const;
  /// Throws InvalidArgument for what does not fit the problem.
  MapRequest make_request(const ProblemShape& shape, const MapPlace& place) const;
  void set_size(MapRequest& request) const;
  /// Of the map in the terminal.
  scene::Color color_depth() const;
  MapLook look(const MapRequest& request) const;
  MapWords words(const AttendInputs& inputs, const AttendRules& rules, const MapRequest& request,
                 const MapLook& look) const;
  void write_output(const MapResult& result, const MapLook& look, const MapWords& words) const;
  void write_stats(const MapRequest& request, const MapResult& result, const MapWords& words) const;
  std::string report(const MapResult& result) const;

  CLI::App* app_;
  WeightArguments arguments_;
  std::string size_;
  std::string reduce_ = "mean";
  std::string tone_;
  std::string colors_ = "viridis";
  std::string color_ = "auto";
  std::string tokens_;
  std::string output_, stats_;
  std::int64_t top_ = 0;
};

}  // namespace fovea::cli
