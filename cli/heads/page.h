// SPDX-License-Identifier: Apache-2.0
//
// The manual page of `fovea heads`.

#pragma once

#include "cli/shell/page.h"

namespace fovea::cli {

Page heads_page();

}  // namespace fovea::cli
