// SPDX-License-Identifier: Apache-2.0
//
// Errors and arguments of all ranks: an error on one rank reaches all, and arguments must be the
// same on all ranks.

#pragma once

#include <exception>
#include <string>
#include <vector>

#include "fovea/distributed.h"
#include "fovea/export.h"

namespace fovea::distributed {

/// An argument that must be the same on all ranks, as text.
struct SharedArgument {
  std::string name;
  std::string text;
};

/// Compares arguments among ranks. `mine` is the error found on this rank, if any. All ranks
/// return, or all throw: the errors of the ranks that have one, or InvalidArgument with the first
/// argument that differs. Collective; `arguments` must have the same names on all ranks that call
/// the same operation, and must include its name.
void agree(Transport& transport, const std::vector<SharedArgument>& arguments,
           const std::exception_ptr& mine);

/// Throws on all ranks if `mine` is an error on one of them. The message names the ranks, unless
/// all have the same error. Collective.
FOVEA_API void share_errors(Transport& transport, const std::exception_ptr& mine);

/// Does some work on each rank. Throws on all ranks if it fails on one of them. Collective.
template <class Work>
void do_on_all(Transport& transport, const Work& work) {
  std::exception_ptr error;
  try {
    work();
  } catch (...) {
    error = std::current_exception();
  }
  share_errors(transport, error);
}

/// Calls `check(arguments)`, which fills in the arguments, and passes them to agree(), together
/// with the exception that it threw, if any. Collective.
template <class Check>
void check_and_agree(Transport& transport, const Check& check) {
  std::vector<SharedArgument> arguments;
  std::exception_ptr error;
  try {
    check(arguments);
  } catch (...) {
    error = std::current_exception();
  }
  agree(transport, arguments, error);
}

/// Returns a hash of 64 bits as text; different contents have different ones, up to rare
/// collisions.
std::string digest(const void* bytes, std::size_t count);

}  // namespace fovea::distributed
