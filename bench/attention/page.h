// SPDX-License-Identifier: Apache-2.0
//
// The manual page of `fovea-bench`, but for its options.

#pragma once

#include "cli/shell/page.h"

namespace fovea::cli {

Page bench_page();

}  // namespace fovea::cli
