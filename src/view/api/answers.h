// SPDX-License-Identifier: Apache-2.0
//
// The results of the explorer as JSON.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "view/explorer/explorer.h"
#include "view/input/input.h"

namespace fovea::view {

/// Returns {"state", "done", "total", "seconds_left"}.
std::string pass_json(const PassProgress& pass);

/// `head` is its name in paths, "13.2".
std::string status_json(const HeadStatus& status, const Layer& layer, std::string_view head);
std::string cell_json(const CellAnswer& cell, const Layer& layer, std::int64_t query,
                      std::int64_t key);
std::string row_json(const RowAnswer& row, const Layer& layer, std::int64_t query);
std::string column_json(const ColumnAnswer& column, const Layer& layer, std::int64_t key);
std::string heads_json(const std::vector<HeadNumbers>& heads, const Layer& layer);

/// `connections` are those of the server.
std::string counters_json(const Counters& counters, std::int64_t connections);

}  // namespace fovea::view
