// SPDX-License-Identifier: Apache-2.0
//
// PNG output through libpng (png.h). libpng reports errors by longjmp, which skips destructors, so
// rows and texts are allocated before the call and outlive it.

#include "picture/png.h"

#include <array>
#include <csetjmp>
#include <cstddef>
#include <new>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <png.h>

#include "fovea/info.h"
#include "fovea/lenses.h"

namespace fovea {
namespace {

constexpr std::size_t kPalette = 256;
constexpr std::uint8_t kMaskedPlace = 0;
constexpr std::uint8_t kNanPlace = 1;
constexpr int kLevels = 254;  // the remaining palette entries

std::uint8_t place_of(const CellList& cells, const Scale& scale, std::size_t cell) {
  switch (cells.kind(cell)) {
    case CellKind::kMasked:
      return kMaskedPlace;
    case CellKind::kNan:
      return kNanPlace;
    case CellKind::kWeight:
      break;
  }
  const double heat = scale.heat(cells.value(cell));
  return static_cast<std::uint8_t>(2.5 + heat * (kLevels - 1));
}

/// Input and output buffers of libpng.
struct Image {
  png_uint_32 width = 0;
  png_uint_32 height = 0;
  std::array<png_color, kPalette> palette{};
  std::vector<png_bytep> rows;
  std::vector<png_text> texts;
  std::string bytes;
  bool transparent = true;
  bool no_memory = false;
};

void append(png_structp png, png_bytep data, std::size_t size) {
  auto* image = static_cast<Image*>(png_get_io_ptr(png));
  try {
    image->bytes.append(reinterpret_cast<const char*>(data), size);
  } catch (const std::bad_alloc&) {
    image->no_memory = true;
  }
  if (image->no_memory) png_error(png, "out of memory");
}

void stay_quiet(png_structp /*png*/, png_const_charp /*message*/) {}

/// Encodes the image. Returns whether encoding succeeded.
bool write(Image& image) {
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, stay_quiet);
  if (png == nullptr) return false;
  png_infop info = png_create_info_struct(png);
  if (info == nullptr || setjmp(png_jmpbuf(png)) != 0) {
    png_destroy_write_struct(&png, &info);
    return false;
  }
  constexpr png_byte kTransparent[] = {0};
  png_set_write_fn(png, &image, append, nullptr);
  png_set_user_limits(png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
  png_set_IHDR(png, info, image.width, image.height, 8, PNG_COLOR_TYPE_PALETTE, PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_set_PLTE(png, info, image.palette.data(), static_cast<int>(kPalette));
  if (image.transparent) png_set_tRNS(png, info, kTransparent, 1, nullptr);
  png_set_text(png, info, image.texts.data(), static_cast<int>(image.texts.size()));
  png_set_rows(png, info, image.rows.data());
  png_write_png(png, info, PNG_TRANSFORM_IDENTITY, nullptr);
  png_destroy_write_struct(&png, &info);
  return true;
}

}  // namespace

std::string image_as_png(IndexedImage of, const std::vector<ImageText>& texts) {
  Image image;
  image.width = static_cast<png_uint_32>(of.width);
  image.height = static_cast<png_uint_32>(of.height);
  image.transparent = of.transparent;
  for (std::size_t i = 0; i < kPalette; ++i) {
    image.palette[i] = {of.palette[i].red, of.palette[i].green, of.palette[i].blue};
  }
  for (std::size_t r = 0; r < image.height; ++r) {
    image.rows.push_back(of.pixels.data() + r * image.width);
  }
  // libpng takes pointers to non-const strings but does not modify them.
  std::vector<ImageText> own = texts;
  std::string none;
  for (auto& [keyword, text] : own) {
    png_text entry{};
    entry.compression = PNG_ITXT_COMPRESSION_NONE;
    entry.key = keyword.data();
    entry.text = text.data();
    entry.itxt_length = text.size();
    entry.lang = none.data();
    entry.lang_key = none.data();
    image.texts.push_back(entry);
  }
  if (!write(image)) {
    if (image.no_memory) throw std::bad_alloc();
    throw std::runtime_error("libpng could not make the image");
  }
  return std::move(image.bytes);
}

std::vector<ImageText> map_texts(const MapCells& map, const MapLook& look, const MapWords& words) {
  const Scale scale(look.tone, map);
  std::vector<ImageText> texts = {{"Title", words.title},
                                  {"Software", "fovea " + build_info().version}};
  for (const std::string& line : words.lines) texts.emplace_back("Description", line);
  texts.emplace_back("fovea:queries", fmt::format("{}:{}", map.queries.begin, map.queries.end));
  texts.emplace_back("fovea:keys", fmt::format("{}:{}", map.keys.begin, map.keys.end));
  texts.emplace_back("fovea:reduce", pool_name(map.pool));
  texts.emplace_back("fovea:tone", look.tone_name);
  texts.emplace_back("fovea:colormap", look.colors_name);
  texts.emplace_back("fovea:range", fmt::format("{:.9g} {:.9g}", scale.bottom(), scale.top()));
  texts.emplace_back("Comment", "rows are queries, columns keys; masked pixels are transparent");
  return texts;
}

std::string map_as_png(const MapCells& map, const MapLook& look,
                       const std::vector<ImageText>& texts) {
  IndexedImage image;
  image.width = map.columns();
  image.height = map.rows();
  // The colour of masked cells in viewers that do not support transparency.
  image.palette[kMaskedPlace] = {0xe4, 0xe4, 0xe4};
  image.palette[kNanPlace] = nan_color(look.colors);
  for (std::size_t i = 0; i < kLevels; ++i) {
    image.palette[i + 2] = color_of(look.colors, static_cast<double>(i) / (kLevels - 1));
  }
  const Scale scale(look.tone, map);
  const CellList cells(map);
  image.pixels.reserve(cells.size());
  for (std::size_t i = 0; i < cells.size(); ++i) {
    image.pixels.push_back(place_of(cells, scale, i));
  }
  return image_as_png(std::move(image), texts);
}

}  // namespace fovea
