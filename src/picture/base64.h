// SPDX-License-Identifier: Apache-2.0
//
// Base64, for images and numbers in pages.

#pragma once

#include <span>
#include <string>

namespace fovea {

std::string base64(std::span<const unsigned char> bytes);

/// Returns a PNG as the address of an image: "data:image/png;base64,...".
std::string png_address(const std::string& png);

}  // namespace fovea
