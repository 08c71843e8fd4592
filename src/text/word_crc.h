// SPDX-License-Identifier: Apache-2.0
//
// A number that depends only on a word, to seed the random numbers of the word.

#pragma once

#include <cstdint>
#include <string_view>

#include "fovea/export.h"

namespace fovea {

/// Returns the CRC-32 of the word in lower case, equal to `zlib.crc32(word.lower().encode())` in
/// Python.
FOVEA_API std::uint32_t word_crc(std::string_view word);

}  // namespace fovea
