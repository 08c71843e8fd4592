// SPDX-License-Identifier: Apache-2.0
//
// The path and the arguments of a request, read strictly: what is unknown, doubled or malformed is
// refused, with a message that names the argument.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/map.h"

#include "view/http/http.h"

namespace fovea::view {

/// The query of a request's target, "query=4&key=2".
class Arguments {
 public:
  /// Decodes %XX and "+". Throws HttpError 400 for malformed or doubled arguments, and for others
  /// than those `allowed`, a list such as "query,key".
  Arguments(std::string_view query, std::string_view allowed);

  std::optional<std::string> find(std::string_view name) const;
  /// Returns the text, which must be given.
  std::string text(std::string_view name) const;
  /// Returns a whole number from `least` to `most`, which must be given unless `usual` is.
  std::int64_t integer(std::string_view name, std::int64_t least, std::int64_t most,
                       std::optional<std::int64_t> usual = {}) const;
  /// Returns whole numbers from 0 to `most` with commas between them, at most `count`.
  std::vector<std::int64_t> integers(std::string_view name, std::int64_t most,
                                     std::size_t count) const;
  /// Returns FIRST:END with 0 <= FIRST < END <= length, of at most `longest` positions; all of it
  /// if not given.
  IndexRange range(std::string_view name, std::int64_t length,
                   std::int64_t longest = std::numeric_limits<std::int64_t>::max()) const;
  /// Returns the index of one of `choices`, the first if not given.
  std::size_t choice(std::string_view name, const std::vector<std::string_view>& choices) const;

 private:
  std::map<std::string, std::string, std::less<>> given_;
};

/// The target of a request.
struct Target {
  std::vector<std::string> path;  ///< segments, decoded: {"map", "a-1", "3.2"}
  std::string_view query;         ///< as received
};

/// Throws HttpError 404 for a path with empty segments, "." or "..", whether encoded or not, and
/// 400 for one that is malformed.
Target parse_target(std::string_view target);

/// Matches a path with a pattern, in which words in capitals stand for any segment, and HEAD for
/// one with a dot. Returns the segments they stand for.
std::optional<std::vector<std::string>> match_path(std::string_view pattern,
                                                   const std::vector<std::string>& path);

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
