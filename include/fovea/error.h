// SPDX-License-Identifier: Apache-2.0
//
// The errors that Fovea throws itself (std::bad_alloc passes through). A message names the thing,
// what was expected and what came. The library never prints, aborts or exits.

#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

#include "fovea/export.h"

namespace fovea {

/// The caller's mistake: a shape that does not fit, an option out of range, a malformed scene.
class FOVEA_API InvalidArgument : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
  /// About one argument: the message is "argument: mistake".
  InvalidArgument(std::string_view argument, std::string_view mistake)
      : std::invalid_argument(std::string(argument).append(": ").append(mistake)),
        argument_size_(argument.size()) {}

  /// The name of the argument that the message is about, by which it begins; empty where it is
  /// about none alone. Valid as long as this is.
  std::string_view argument() const noexcept { return {what(), argument_size_}; }

 private:
  std::size_t argument_size_ = 0;
};

/// A file that could not be opened, read or written.
class FOVEA_API IoError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A file, or standard output, that could not be written. The message names it and the reason.
class FOVEA_API OutputError : public IoError {
 public:
  using IoError::IoError;
};

/// A cache has no room for what was to be appended, and is as it was. Nobody's mistake: who serves
/// many sequences waits until one of them ends, or lets one go.
class FOVEA_API CacheFull : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A call ended early because its stop token said so (Execution::stop); no mistake of anybody.
class FOVEA_API Stopped : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace fovea
