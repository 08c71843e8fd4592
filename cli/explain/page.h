// SPDX-License-Identifier: Apache-2.0
//
// The manual page of `fovea explain`, but for its options.

#pragma once

#include "cli/shell/page.h"

namespace fovea::cli {

Page explain_page();

}  // namespace fovea::cli
