// SPDX-License-Identifier: Apache-2.0
//
// Files of Fovea's.

#pragma once

namespace fovea {

/// Removes the files that are being written at this moment. For the handler of a signal that ends
/// the process: it may be called there.
void remove_temporary_files() noexcept;

}  // namespace fovea
