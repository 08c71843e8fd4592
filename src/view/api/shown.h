// SPDX-License-Identifier: Apache-2.0
//
// The address that a framed page shows, shared by the page and the program that started the server,
// such as a notebook. Both read and replace it.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fovea::view {

/// An address with a version, so that a page never overwrites one that it has not seen.
class ShownAddress {
 public:
  /// Returns {"version", "address", "program"}: "program" is whether the program set it. At first,
  /// the version is 0 and the address is empty.
  std::string json() const;

  /// Replaces the address by that of a JSON object {"address", "program": true} or {"address",
  /// "after"}, where "after" is the version that the page knows; returns {"version"}.
  ///
  /// Throws HttpError 400 for anything else and for addresses that are no path of this server or
  /// contain `token`; 409, code "newer", if there is another version than "after".
  std::string replace(std::string_view body, std::string_view token);

 private:
  std::int64_t version_ = 0;
  std::string address_;
  bool program_ = false;
};

}  // namespace fovea::view
