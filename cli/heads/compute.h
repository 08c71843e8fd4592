// SPDX-License-Identifier: Apache-2.0
//
// Computation of the head statistics of `fovea heads`, of one problem, of all attentions of a
// recording, or over many recordings.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/map.h"
#include "fovea/recording.h"

#include "cli/problem/inputs.h"
#include "cli/problem/rules.h"
#include "cli/shell/progress.h"
#include "engine/weights/head_names.h"

namespace fovea::cli {

using engine::HeadPlace;
using engine::HeadTold;
using enum engine::HeadPlace;

/// An attention whose heads are shown.
struct HeadsSource {
  AttendInputs inputs;
  AttendRules rules;

  /// Returns the attention in its recording; null for tensors of files.
  const RecordedAttention* recorded() const {
    return inputs.source ? &inputs.source->attention : nullptr;
  }
};

/// A head with its statistics. HeadTold::head is the index in the model.
struct HeadOfSource : HeadTold {
  std::size_t source = 0;   ///< index of the HeadsSource
  std::int64_t number = 0;  ///< index of the head in the tensors
};

struct HeadsResult {
  std::vector<HeadOfSource> heads;  ///< by attention, batch item and head
  std::int64_t blocks = 16;
  int threads = 1;
  double seconds = 0.0;
};

/// Returns the values of `--sort`, the default of problems without layers first.
std::vector<std::string> head_orders();
/// Sorts in descending order with NaN last. The sort is stable; "head" leaves the order unchanged.
void sort_heads(std::vector<HeadOfSource>& heads, std::string_view order);
/// Returns the value by which an order sorts a head.
double order_value(const HeadOfSource& head, std::string_view order);

/// Computes the statistics of all heads, and token scores where there are tokens. Rules must be
/// valid for their inputs. Throws InvalidArgument with a message that names the option.
HeadsResult compute_heads(const std::vector<HeadsSource>& sources, std::int64_t blocks, int threads,
                          Progress& progress);

/// Computes the map of a head with at most `side` cells along either axis; means of weights.
MapCells map_of_head(const HeadsSource& source, const HeadOfSource& head, std::int64_t side,
                     int threads);

}  // namespace fovea::cli
