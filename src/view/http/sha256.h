// SPDX-License-Identifier: Apache-2.0
//
// SHA-256 (FIPS 180-4), by which a content security policy names a script, and assets their
// content.

#pragma once

#include <array>
#include <string_view>

namespace fovea::view {

using Sha256 = std::array<unsigned char, 32>;

Sha256 sha256(std::string_view bytes);

}  // namespace fovea::view
