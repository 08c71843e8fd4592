// SPDX-License-Identifier: Apache-2.0
//
// Everything that the page asks about the weights of a head: tiles, cells, rows, columns, summaries
// and the pass over all rows. One thread calls the engine; requests are answered in the order of
// their urgency, and those that nobody waits for any more are stopped.

#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <variant>
#include <vector>

#include "fovea/map.h"
#include "fovea/recording.h"

#include "view/input/input.h"

namespace fovea::view {

/// A head of an input: indices into Explorer::inputs(), Input::layers, and the heads of the
/// tensors.
struct HeadPlace {
  std::size_t input = 0;
  std::size_t layer = 0;
  std::int64_t head = 0;

  friend bool operator==(const HeadPlace&, const HeadPlace&) = default;
};

/// A tile of the pyramid: cells of 2^level x 2^level pairs, kTileSide x kTileSide of them.
struct TilePlace {
  Pool reduce = Pool::kMax;  ///< kMax or kMean
  int level = 0;
  std::int64_t x = 0;  ///< the first key is kTileSide x 2^level
  std::int64_t y = 0;  ///< the first query likewise

  friend bool operator==(const TilePlace&, const TilePlace&) = default;
};
inline constexpr std::int64_t kTileSide = 256;

/// The bytes of a frame (frame.h), shared with the cache.
using FrameBytes = std::shared_ptr<const std::string>;

/// One weight.
struct CellAnswer {
  double score = 0.0;   ///< -inf if the mask hides the key
  double weight = 0.0;  ///< bit-identical to attention_weights()
  double lse = 0.0;
  bool hidden = false;
};

struct KeyWeight {
  std::int64_t position = 0;  ///< a key of a row, or a query of a column
  double weight = 0.0;
};

/// One query.
struct RowAnswer {
  double lse = 0.0;
  double entropy = 0.0, maximum = 0.0, mean_distance = 0.0, first_key = 0.0;
  std::int64_t maximum_key = -1;
  std::int64_t visible = 0;         ///< keys that the query sees
  std::vector<KeyWeight> top = {};  ///< the largest weights, in descending order
  /// Entry b: the number of weights w with 2^-(b + 1) < w <= 2^-b. Entry 63 also counts smaller
  /// ones; later zeros are omitted.
  std::vector<std::int64_t> powers = {};
};

/// One key.
struct ColumnAnswer {
  double sum = 0.0;  ///< over all queries, as attention_received() computes it for all keys
  double largest = 0.0;
  std::vector<KeyWeight> top = {};
};

/// Which weights attention_weights() of several rows or columns are asked for.
struct LineRequest {
  bool of_keys = true;                   ///< rows (weights on keys); otherwise columns
  std::vector<std::int64_t> lines = {};  ///< queries (or keys), whose weights are averaged
  IndexRange range = {};                 ///< the keys (or queries) to return
};

/// The pass over the rows of a head.
struct PassProgress {
  enum class State : std::uint8_t { kIdle, kRunning, kPaused, kDone } state = State::kIdle;
  std::int64_t done = 0, total = 0;  ///< row blocks
  std::optional<double> seconds_left = {};
};

/// Facts about a head that need no computation.
struct HeadStatus {
  int levels = 1;                 ///< the coarsest level, levels - 1, fits one tile
  int base_level = 0;             ///< tiles of this and all coarser levels come from the pass
  int mean_levels = 0;            ///< tiles of Pool::kMean exist below this level
  std::int64_t row_block = 1024;  ///< queries of a row block
  bool lse_known = false;         ///< for all rows
  PassProgress pass = {};
  /// A digit per row block, that of its RowState (frame.h). Tiles of stored levels that are not
  /// final change when those of their blocks do.
  std::string blocks = {};
  std::vector<double> largest = {}, smallest = {};  ///< cells of each level so far; NaN if unknown
};

/// The numbers and the name of each head of a layer, as `fovea heads` prints them.
struct HeadNumbers {
  std::int64_t head = 0;             ///< of the model
  std::string name;                  ///< "previous token"; empty if no name fits
  std::vector<double> numbers = {};  ///< in the order of number_names()
};

struct Counters {
  std::int64_t computed = 0, reused = 0, cancelled = 0;  ///< tiles
  std::int64_t blocks = 0;                               ///< row blocks computed
  std::int64_t bytes = 0;    ///< of caches, lse, statistics and base cells
  std::int64_t waiting = 0;  ///< requests in the queue
};

struct ExplorerOptions {
  int threads = 0;                              ///< as Execution::threads
  std::int64_t memory = std::int64_t{1} << 30;  ///< bytes for tiles, base cells and statistics
};

/// A result, or the exception that ended its computation.
template <class Result>
using Answer = std::variant<Result, std::exception_ptr>;
/// Called once, from the thread of the explorer or at once from the caller's (results from memory).
/// Not called if the request is stopped.
template <class Result>
using Reply = std::function<void(Answer<Result>)>;

struct ExplorerParts;  // explorer_parts.h

/// Threads   re-entrant. Callbacks must not block.
/// Errors    the constructor throws InvalidArgument if the memory is too small, with the number
///           needed. Requests outside the problem give InvalidArgument to their reply.
/// Shutdown  the destructor stops the computation in progress and forgets all requests. Callbacks
///           must not destroy the explorer.
class Explorer {
 public:
  Explorer(std::vector<Input> inputs, const ExplorerOptions& options);
  ~Explorer();
  Explorer(const Explorer&) = delete;
  Explorer& operator=(const Explorer&) = delete;

  const std::vector<Input>& inputs() const;
  const Layer& layer(const HeadPlace& head) const;

  /// Starts the pass of the head, which has the lowest priority, unless it was stopped by hand.
  /// Throws InvalidArgument if there is no such head.
  HeadStatus status(const HeadPlace& head);
  Counters counters() const;

  /// Requests for the same tile share one computation. If a tile below the base level needs rows
  /// that the pass has not reached, their blocks are computed first. Tiles of stored levels are
  /// answered at once with what is known (frame_is_final()), and start the pass as status() does.
  void tile(const HeadPlace& head, const TilePlace& place, std::stop_token stop,
            Reply<FrameBytes> reply);
  void cell(const HeadPlace& head, std::int64_t query, std::int64_t key, std::stop_token stop,
            Reply<CellAnswer> reply);
  void row(const HeadPlace& head, std::int64_t query, std::int64_t top, std::stop_token stop,
           Reply<RowAnswer> reply);
  void column(const HeadPlace& head, std::int64_t key, std::int64_t top, std::stop_token stop,
              Reply<ColumnAnswer> reply);
  /// Returns weights averaged over the lines; -1 where no line shows the pair.
  void lines(const HeadPlace& head, LineRequest request, std::stop_token stop,
             Reply<std::vector<float>> reply);
  /// All heads of a layer; HeadPlace::head is ignored.
  void heads(const HeadPlace& layer, std::stop_token stop, Reply<std::vector<HeadNumbers>> reply);
  /// One frame per head of the layer, at most 64 x 64 cells, which are those of attention_map().
  /// FrameHeader::x is the index of the head in the model, y that of the layer in Input::layers.
  void thumbnails(const HeadPlace& layer, Pool reduce, std::stop_token stop,
                  Reply<std::vector<FrameBytes>> reply);
  /// Any map of a head, for exports.
  void map(const HeadPlace& head, const MapRequest& request, std::stop_token stop,
           Reply<AttentionMap> reply);

  /// Computes the row blocks with these queries before the other blocks, and resumes a stopped
  /// pass. Throws InvalidArgument if they are outside the problem.
  void start_pass(const HeadPlace& head, IndexRange queries);
  void stop_pass(const HeadPlace& head);

  /// The names of HeadNumbers::numbers: those of `fovea heads`.
  static const std::vector<std::string>& number_names();

 private:
  std::unique_ptr<ExplorerParts> parts_;
};

}  // namespace fovea::view
