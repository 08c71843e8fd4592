// SPDX-License-Identifier: Apache-2.0
//
// The numbers of `fovea heads`: what is told of each head, and which name fits it.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/heads.h"

#include "cli/problem/inputs.h"
#include "cli/problem/rules.h"
#include "cli/shell/progress.h"

namespace fovea::cli {

/// Places in fovea::kHeadNumbers.
enum HeadPlace : std::size_t {
  kEntropy,
  kEvenEntropy,
  kMaximum,
  kMeanDistance,
  kFirstKey,
  kPreviousKey,
  kOwnKey,
  kNextKey,
  kBlockDiagonal
};

struct HeadTold {
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::array<double, kHeadNumbers.size()> numbers{};

  double operator[](HeadPlace place) const { return numbers[place]; }
  /// The entropy as a share of that of equal weights; nan where every row sees a single key.
  double evenness() const;
  /// The largest of the shares of single places: first, previous, own and next key.
  double largest_share() const;
  /// "previous token", or nothing where no name fits.
  std::string_view name() const;
};

struct HeadsResult {
  std::vector<HeadTold> heads;  ///< of the first batch item, then of the next
  std::int64_t blocks = 16;
  int threads = 1;
  double seconds = 0.0;
};

/// What `--sort` takes, the default first.
std::vector<std::string> head_orders();
/// The largest first, nan last, equals as they were; by "head", as they come.
void sort_heads(std::vector<HeadTold>& heads, std::string_view order);

/// Computes, with rules that fit the problem. Throws InvalidArgument, in words of options.
HeadsResult compute_heads(const AttendInputs& inputs, const AttendRules& rules, std::int64_t blocks,
                          int threads, Progress& progress);

}  // namespace fovea::cli
