// SPDX-License-Identifier: Apache-2.0
//
// The base of all transports (fovea/distributed.h).

#include "fovea/distributed.h"

namespace fovea::distributed {

Transport::~Transport() = default;

}  // namespace fovea::distributed
