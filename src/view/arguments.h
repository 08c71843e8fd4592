// SPDX-License-Identifier: Apache-2.0
//
// The path and the arguments of a request, read strictly: what is unknown, doubled or malformed is
// refused, with a message that names the argument.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fovea/map.h"

#include "view/http.h"

namespace fovea::view {

/// The query of a request's target, "query=4&key=2".
class Arguments {
 public:
  /// Decodes %XX and "+". Throws HttpError 400 for malformed or doubled arguments.
  explicit Arguments(std::string_view query);

  // Each function takes an argument, so that finish() knows it.

  std::optional<std::string> find(std::string_view name);
  /// Returns the text, which must be given.
  std::string text(std::string_view name);
  /// Returns a whole number from `least` to `most`, which must be given unless `usual` is.
  std::int64_t integer(std::string_view name, std::int64_t least, std::int64_t most,
                       std::optional<std::int64_t> usual = {});
  /// Returns whole numbers from 0 to `most` with commas between them, at most `count`.
  std::vector<std::int64_t> integers(std::string_view name, std::int64_t most, std::size_t count);
  /// Returns FIRST:END with 0 <= FIRST < END <= length; all of it if not given.
  IndexRange range(std::string_view name, std::int64_t length);
  /// Returns the index of one of `choices`, the first if not given.
  std::size_t choice(std::string_view name, const std::vector<std::string_view>& choices);

  /// Throws HttpError 400 if an argument was not taken.
  void finish() const;

 private:
  struct Given {
    std::string name, value;
    bool taken = false;
  };
  std::vector<Given> given_;
};

/// The target of a request.
struct Target {
  std::vector<std::string> path;  ///< segments, decoded: {"map", "a-1", "3.2"}
  std::string_view query;         ///< as received
};

/// Throws HttpError 404 for a path with empty segments, "." or "..", whether encoded or not, and
/// 400 for one that is malformed.
Target parse_target(std::string_view target);

/// Returns the error for an argument: "NAME: MISTAKE".
HttpError malformed(std::string_view name, std::string_view mistake);

/// Parses a whole number of 0 or more without sign.
std::optional<std::int64_t> whole_number(std::string_view text);
/// Parses FIRST:END as Arguments::range() does.
IndexRange parse_range(std::string_view name, std::string_view text, std::int64_t length);

/// Parses the body that starts a pass, {"rows": "FIRST:END"} or nothing for all `queries`. Throws
/// HttpError and InvalidArgument.
IndexRange parse_pass(std::string_view body, std::int64_t queries);

}  // namespace fovea::view
