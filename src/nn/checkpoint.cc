// SPDX-License-Identifier: Apache-2.0
//
// Saves parameters to files and loads them (fovea/nn/checkpoint.h).

#include "fovea/nn/checkpoint.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fovea/error.h"
#include "fovea/files.h"

#include "core/fail.h"
#include "files/file_format.h"

namespace fovea::nn {
namespace {

/// Returns a count with the first names, such as "2 missing (a, b)". Empty if there are no names.
std::string counted(std::string_view what, const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 3;
  if (names.empty()) return {};
  const std::span<const std::string> first(names.data(), std::min(kShown, names.size()));
  return fmt::format("{} {} ({}{})", names.size(), what, fmt::join(first, ", "),
                     names.size() > kShown ? ", ..." : "");
}

/// Returns the reason why the tensor does not fit the parameter, or an empty string if it fits.
std::string mismatch(const TensorInfo& tensor, const Parameter& parameter) {
  if (!tensor.unreadable.empty()) return fmt::format("{}: {}", tensor.name, tensor.unreadable);
  if (tensor.shape != parameter.value.shape()) {
    return fmt::format("{}: expected {}, got {}", tensor.name, to_string(parameter.value.shape()),
                       to_string(tensor.shape));
  }
  if (!tensor.dtype || !is_float(*tensor.dtype)) {
    return fmt::format("{}: expected floats, got {}", tensor.name, tensor.stored_type);
  }
  return {};
}

}  // namespace

void save_parameters(const Parameters& parameters, const std::string& path) {
  // write_tensors also writes .npy files and standard output, both without names of tensors.
  const auto format = files::format_by_ending(path);
  if (!format || *format == FileFormat::kNpy) {
    fail("{}: expected a name that ends in .safetensors or .npz", path);
  }
  std::vector<NamedTensor> tensors;
  for (const Parameter& parameter : parameters) {
    tensors.push_back({parameter.name, parameter.value.view()});
  }
  write_tensors(path, tensors);
}

void load_parameters(Parameters& parameters, const std::string& path) {
  const TensorFile file = TensorFile::open(path);
  std::map<std::string_view, const TensorInfo*> left;
  for (const TensorInfo& tensor : file.tensors()) left.emplace(tensor.name, &tensor);
  std::vector<std::string> missing, unexpected, unfit;
  for (const Parameter& parameter : parameters) {
    const auto found = left.find(parameter.name);
    if (found == left.end()) {
      missing.push_back(parameter.name);
      continue;
    }
    std::string wrong = mismatch(*found->second, parameter);
    if (!wrong.empty()) unfit.push_back(std::move(wrong));
    left.erase(found);
  }
  for (const auto& [name, tensor] : left) unexpected.emplace_back(name);

  std::vector<std::string> said;
  for (const std::string& part : {counted("missing", missing), counted("not expected", unexpected),
                                  counted("that do not fit", unfit)}) {
    if (!part.empty()) said.push_back(part);
  }
  if (!said.empty()) {
    throw InvalidArgument(
        fmt::format("{}: expected exactly the parameters of the model, got tensors of which {}",
                    path, fmt::join(said, "; ")));
  }

  // All tensors are read before any is copied, because reading a damaged .npz may fail at any of
  // them.
  std::vector<Tensor> values;
  for (const Parameter& parameter : parameters) {
    values.push_back(convert(file.read(parameter.name), parameters.dtype()));
  }
  std::size_t number = 0;
  for (Parameter& parameter : parameters) {
    // Copied into the existing tensor, because others hold views of it.
    const Tensor& read = values[number++];
    std::copy_n(static_cast<const std::byte*>(read.view().data()),
                static_cast<std::size_t>(read.size()) * dtype_size(read.dtype()),
                static_cast<std::byte*>(parameter.value.view().data()));
  }
}

}  // namespace fovea::nn
