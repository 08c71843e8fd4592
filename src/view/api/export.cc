// SPDX-License-Identifier: Apache-2.0
//
// Files of maps (export.h).

#include "view/api/export.h"

#include <algorithm>
#include <array>
#include <optional>

#include <fmt/format.h>

#include "files/npy_header.h"
#include "picture/png.h"
#include "picture/svg.h"
#include "picture/words.h"

namespace fovea::view {
namespace {

constexpr std::int64_t kUsualSide = 1024;
constexpr std::int64_t kMaxSide = 16384;
/// Of a table of numbers, in which a cell takes about 4 bytes as .npy and 12 as .csv.
constexpr std::int64_t kMaxTableBytes = std::int64_t{64} << 20;
constexpr std::int64_t kNpyBytes = 4, kCsvBytes = 12;

constexpr std::array<std::string_view, 4> kEndings = {"png", "svg", "npy", "csv"};
constexpr std::array<std::string_view, 4> kTypes = {
    "image/png", "image/svg+xml", "application/octet-stream", "text/csv; charset=utf-8"};

/// Parses WIDTHxHEIGHT, the number of columns and rows.
void set_size(const Arguments& arguments, MapRequest& map) {
  const std::int64_t keys = map.keys.size(), queries = map.queries.size();
  map.columns = std::min(keys, kUsualSide);
  map.rows = std::min(queries, kUsualSide);
  const std::optional<std::string> size = arguments.find("size");
  if (!size) return;
  const std::size_t cross = size->find('x');
  const std::string_view text = *size;
  const auto width = whole_number(text.substr(0, cross));
  const auto height =
      cross == std::string::npos ? std::nullopt : whole_number(text.substr(cross + 1));
  if (!width || !height || *width < 1 || *height < 1 || *width > keys || *height > queries) {
    throw malformed("size", fmt::format("expected WIDTHxHEIGHT, from 1x1 to {}x{}, got \"{}\"",
                                        keys, queries, text));
  }
  map.columns = *width;
  map.rows = *height;
}

void check_size(const ExportRequest& request) {
  const MapRequest& map = request.map;
  if (map.rows > kMaxSide || map.columns > kMaxSide) {
    throw HttpError(
        413, "too_large",
        fmt::format("size: expected at most {0}x{0}, got {1}x{2}", kMaxSide, map.columns, map.rows),
        "size");
  }
  const std::int64_t bytes = request.format == ExportFormat::kNpy   ? kNpyBytes
                             : request.format == ExportFormat::kCsv ? kCsvBytes
                                                                    : 0;
  if (map.rows * map.columns * bytes > kMaxTableBytes) {
    throw HttpError(413, "too_large",
                    fmt::format("size: expected at most {} cells in this format, got {}",
                                kMaxTableBytes / bytes, map.rows * map.columns),
                    "size");
  }
}

std::string as_npy(const MapCells& map) {
  const Tensor converted =
      map.cells.dtype() == DType::kFloat32 ? Tensor() : convert(map.cells, DType::kFloat32);
  const Tensor& cells = converted.defined() ? converted : map.cells;
  std::string bytes = files::npy_header_text(DType::kFloat32, cells.shape());
  bytes.append(static_cast<const char*>(cells.view().data()),
               static_cast<std::size_t>(element_count(cells.shape())) * sizeof(float));
  return bytes;
}

std::string as_csv(const MapCells& map) {
  std::string text = "query";
  for (std::int64_t column = 0; column < map.columns(); ++column) {
    text += fmt::format(",{}", map.keys_of(column).begin);
  }
  const CellList cells(map);
  std::size_t at = 0;
  for (std::int64_t row = 0; row < map.rows(); ++row) {
    text += fmt::format("\n{}", map.queries_of(row).begin);
    for (std::int64_t column = 0; column < map.columns(); ++column, ++at) {
      text += ',';
      if (cells.kind(at) == CellKind::kMasked) continue;
      fmt::format_to(std::back_inserter(text), "{}", static_cast<float>(cells.value(at)));
    }
  }
  return text + "\n";
}

std::vector<std::string> tokens_of(const TokenTexts& tokens) {
  return tokens ? *tokens : std::vector<std::string>();
}

std::string file_of(const ExportOrigin& origin, const ExportRequest& request, const MapCells& map) {
  if (request.format == ExportFormat::kNpy) return as_npy(map);
  if (request.format == ExportFormat::kCsv) return as_csv(map);
  const Layer& layer = origin.layer;
  const MapSubject subject = {.name = layer.words,
                              .model = origin.model,
                              .source = origin.source,
                              .shape = layer.attention.shape(),
                              .head = layer.attention.model_head(request.map.head),
                              .some_heads = !layer.attention.heads.empty(),
                              .mask = layer.mask_words,
                              .scores = layer.score_words};
  MapWords words = map_words(subject, request.map, request.look);
  words.query_tokens = tokens_of(layer.query_tokens);
  words.key_tokens = tokens_of(layer.key_tokens);
  if (request.format == ExportFormat::kSvg) return map_as_svg(map, request.look, words);
  return map_as_png(map, request.look, map_texts(map, request.look, words));
}

}  // namespace

ExportRequest parse_export(const Arguments& arguments, const Layer& layer, std::int64_t head) {
  constexpr std::array kPools = {Pool::kMean, Pool::kMax, Pool::kSum};
  constexpr std::array kTones = {Tone::kLinear, Tone::kLog, Tone::kSqrt};
  constexpr std::array kColors = {ColorMap::kViridis, ColorMap::kMagma, ColorMap::kCividis,
                                  ColorMap::kGrey};
  ExportRequest request;
  request.format =
      static_cast<ExportFormat>(arguments.choice("format", {kEndings.begin(), kEndings.end()}));
  request.map.batch = layer.batch;
  request.map.head = head;
  request.map.queries = arguments.range("rows", layer.queries());
  request.map.keys = arguments.range("cols", layer.keys());
  set_size(arguments, request.map);
  request.map.pool = kPools[arguments.choice("reduce", {"mean", "max", "sum"})];
  const std::size_t tone = arguments.choice("tone", {"auto", "linear", "log", "sqrt"});
  const ColorMap colors =
      kColors[arguments.choice("colors", {"viridis", "magma", "cividis", "grey"})];
  check_size(request);
  request.look = map_look(colors, tone == 0 ? std::nullopt : std::optional(kTones[tone - 1]),
                          request.map.keys.size());
  return request;
}

HttpResponse export_map(const ExportOrigin& origin, const ExportRequest& request,
                        const MapCells& map) {
  const auto format = static_cast<std::size_t>(request.format);
  HttpResponse response;
  response.type = kTypes[format];
  response.body = file_of(origin, request, map);
  response.fields.emplace_back("Content-Disposition", fmt::format("attachment; filename=\"{}.{}\"",
                                                                  origin.file, kEndings[format]));
  return response;
}

}  // namespace fovea::view
