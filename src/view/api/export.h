// SPDX-License-Identifier: Apache-2.0
//
// Maps as files: what `fovea map` writes for the same options, and tables of numbers.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fovea/map.h"

#include "picture/colors.h"
#include "view/api/arguments.h"
#include "view/http/http.h"
#include "view/input/input.h"

namespace fovea::view {

enum class ExportFormat : std::uint8_t { kPng, kSvg, kNpy, kCsv };

struct ExportRequest {
  ExportFormat format = ExportFormat::kPng;
  MapRequest map = {};
  MapLook look = {};
};

inline constexpr std::string_view kExportArguments = "format,rows,cols,size,reduce,tone,colors";

/// Reads the arguments of an export; defaults are those of `fovea map`.
/// `head` is the index of a recorded head. Throws HttpError 400, and 413 for more cells than
/// allowed.
ExportRequest parse_export(const Arguments& arguments, const Layer& layer, std::int64_t head);

/// The origin of an exported file, copied from the input.
struct ExportOrigin {
  std::string model, source;
  Layer layer;
  std::string file;  ///< the name of the file without its extension
};

/// Returns the file as a download. A .csv has the first key of each column in its first line, the
/// first query of each row in its first column, and empty fields for hidden cells.
HttpResponse export_map(const ExportOrigin& origin, const ExportRequest& request,
                        const MapCells& map);

}  // namespace fovea::view
