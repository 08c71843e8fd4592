// SPDX-License-Identifier: Apache-2.0
//
// The manual page of `fovea map`.

#pragma once

#include "cli/shell/page.h"

namespace fovea::cli {

Page map_page();

}  // namespace fovea::cli
