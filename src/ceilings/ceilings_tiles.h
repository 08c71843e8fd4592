// SPDX-License-Identifier: Apache-2.0
//
// The rate of the tile unit, compiled for processors with tile instructions.

#pragma once

#include <cstdint>

namespace fovea::kernels {

/// Multiplies random tiles of bfloat16, which takes more power than constant ones and is slower,
/// and adds to `used` what depends on all products. Returns the number of floating-point
/// operations. Requires tile_unit_active() == UnitKind::kHardware.
double multiply_add_tiles(std::int64_t rounds, float& used);

}  // namespace fovea::kernels
