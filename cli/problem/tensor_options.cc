// SPDX-License-Identifier: Apache-2.0
//
// Tensors and numbers in options (tensor_options.h).

#include "cli/problem/tensor_options.h"

#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "fovea/error.h"
#include "fovea/files.h"

#include "cli/shell/number_list.h"
#include "core/fail.h"
#include "files/file_format.h"

namespace fovea::cli {

bool is_standard_input(const std::string& spec) { return spec == "-" || spec.starts_with("-:"); }

bool names_tensor(const std::string& spec) {
  const TensorSpec place = parse_tensor_spec(spec);
  std::error_code error;
  return is_standard_input(spec) || files::format_by_ending(place.path) ||
         std::filesystem::exists(place.path, error);
}

TensorRef read_tensor_option(const std::string& option, const std::string& spec) {
  try {
    return read_tensor(spec);
  } catch (const InvalidArgument& error) {
    fail("{}: {}", option, error.what());
  } catch (const IoError& error) {
    throw IoError(fmt::format("{}: {}", option, error.what()));
  }
}

namespace {

/// Reads a tensor instead of a typed list; `expected` describes its elements for messages.
TensorRef read_list(const std::string& option, const std::string& text, const char* expected) {
  if (!names_tensor(text)) {
    fail("{}: expected {} with commas between them, or the file of a tensor, got \"{}\"", option,
         expected, text);
  }
  const TensorRef numbers = read_tensor_option(option, text);
  if (numbers->rank() > 1) {
    fail("{}: {}: expected one dimension at most, got shape {}", option, text,
         to_string(numbers->shape()));
  }
  if (numbers->size() == 0) {
    fail("{}: {}: expected {}, got none", option, text, expected);
  }
  return numbers;
}

}  // namespace

std::vector<std::int64_t> read_whole_numbers(const std::string& option, const std::string& text) {
  if (const auto typed = parse_numbers<std::int64_t>(text)) return *typed;
  const TensorRef found = read_list(option, text, "whole numbers");
  if (found->dtype() != DType::kInt64) {
    fail("{}: {}: expected integers, got {}", option, text, dtype_name(found->dtype()));
  }
  std::vector<std::int64_t> result;
  for_each_index(found->shape(),
                 [&](const Index& at) { result.push_back(found->at<std::int64_t>(at)); });
  return result;
}

std::vector<double> read_numbers(const std::string& option, const std::string& text) {
  if (const auto typed = parse_numbers<double>(text)) return *typed;
  const TensorRef found = read_list(option, text, "numbers");
  if (found->dtype() == DType::kBool) {
    fail("{}: {}: expected numbers, got bool", option, text);
  }
  std::vector<double> result;
  for_each_index(found->shape(), [&](const Index& at) { result.push_back(found->value(at)); });
  return result;
}

}  // namespace fovea::cli
