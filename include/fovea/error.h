// SPDX-License-Identifier: Apache-2.0
//
// Exception types thrown by Fovea. std::bad_alloc is passed through. Messages name the argument or
// file, the expected and the actual value. The library never prints, aborts or exits.

#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

#include "fovea/export.h"

namespace fovea {

/// An invalid argument: a shape that does not fit, an option out of range, a malformed scene.
class FOVEA_API InvalidArgument : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
  /// Creates an error about one argument, with the message "argument: mistake".
  InvalidArgument(std::string_view argument, std::string_view mistake)
      : std::invalid_argument(std::string(argument).append(": ").append(mistake)),
        argument_size_(argument.size()) {}

  /// Returns the name of the invalid argument, with which the message begins. Empty if the error
  /// does not concern a single argument. Valid during the lifetime of this object.
  std::string_view argument() const noexcept { return {what(), argument_size_}; }

 private:
  std::size_t argument_size_ = 0;
};

/// A failure to open, read or write a file.
class FOVEA_API IoError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A failure to write a file or standard output. The message names the output and the reason.
class FOVEA_API OutputError : public IoError {
 public:
  using IoError::IoError;
};

/// A cache has no room for the tokens to append; the cache is unchanged. Recoverable: evict a
/// sequence or retry later.
class FOVEA_API CacheFull : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A call ended early because a stop was requested through Execution::stop. Not an error condition.
class FOVEA_API Stopped : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace fovea
