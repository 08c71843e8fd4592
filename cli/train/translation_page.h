// SPDX-License-Identifier: Apache-2.0
//
// The manual page of `fovea train translate`, but for its options.

#pragma once

#include "cli/shell/page.h"

namespace fovea::cli {

Page train_translate_page();

}  // namespace fovea::cli
