// SPDX-License-Identifier: Apache-2.0
//
// Reading query, key and value (inputs.h).

#include "cli/problem/inputs.h"

#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "fovea/error.h"
#include "fovea/files.h"

#include "cli/problem/recorded.h"
#include "cli/problem/tensor_options.h"
#include "reference/comparison.h"
#include "text/text_width.h"

namespace fovea::cli {
namespace {

template <class... Args>
[[noreturn]] void fail_tensor(const AttendTensor& tensor, fmt::format_string<Args...> format,
                              Args&&... args) {
  throw InvalidArgument(
      fmt::format("{}: {}", tensor.place, fmt::format(format, std::forward<Args>(args)...)));
}

/// The file of --input, which has the tensors without an option of their own.
class InputFile {
 public:
  explicit InputFile(const std::string& spec) {
    if (spec.empty()) return;
    const TensorSpec place = parse_tensor_spec(spec);
    try {
      if (spec == "-" || spec.starts_with("-:")) refuse("standard input, an .npy");
      if (!place.name.empty() && place.name != "bf16") {
        throw InvalidArgument(
            fmt::format("expected FILE or FILE:bf16, got the name \"{}\"; a single tensor goes "
                        "with --query, --key or --value",
                        place.name));
      }
      file_ = TensorFile::open(place.path);
      if (file_->format() == FileFormat::kNpy) refuse(place.path + ", an .npy");
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(fmt::format("--input: {}", error.what()));
    } catch (const IoError& error) {
      throw IoError(fmt::format("--input: {}", error.what()));
    }
    if (!place.name.empty()) suffix_ = ":" + place.name;
  }

  AttendTensor read(const char* name) const {
    AttendTensor found;
    found.name = fmt::format("{}:{}", file_->path(), name);
    found.place = "--input: " + found.name;
    bool there = false;
    for (const TensorInfo& info : file_->tensors()) there = there || info.name == name;
    try {
      found.tensor = file_->read(name + suffix_);
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(fmt::format(
          "--input: {}{}", error.what(),
          there ? "" : fmt::format("; under another name it goes with --{0} FILE:NAME", name)));
    }
    return found;
  }

 private:
  [[noreturn]] static void refuse(const std::string& got) {
    throw InvalidArgument(
        fmt::format("expected an .npz or .safetensors file with query, key and value, got {}, "
                    "which holds one tensor without a name",
                    got));
  }

  std::optional<TensorFile> file_;
  std::string suffix_;
};

AttendTensor read_one(const char* name, const std::string& spec, const InputFile& file) {
  if (spec.empty()) return file.read(name);
  const std::string option = fmt::format("--{}", name);
  AttendTensor found;
  found.name = spec == "-" ? "standard input" : spec;
  found.place = fmt::format("{}: {}", option, found.name);
  found.tensor = read_tensor_option(option, spec);
  return found;
}

/// Returns the largest finite number of a type.
double largest_of(DType type) {
  if (type == DType::kFloat16) return 65504.0;
  if (type == DType::kBFloat16) return 0x1.fep127;
  return std::numeric_limits<float>::max();
}

/// Throws if the conversion to `type` would silently turn finite numbers into infinity.
void require_in_range(const AttendTensor& tensor, DType type) {
  const DType from = tensor.tensor->dtype();
  const bool narrower = type == DType::kFloat16 || type == DType::kBFloat16;
  if (type == DType::kFloat64 || (!narrower && from != DType::kFloat64)) return;
  const double largest = largest_finite(tensor.tensor);
  if (largest <= largest_of(type)) return;
  fail_tensor(tensor, "expected numbers up to {:.6g} in size, as --dtype makes them {}, got {:.6g}",
              largest_of(type), dtype_name(type), largest);
}

/// Converts the tensor to the type of --dtype. Throws if the resulting type is not supported.
void settle_type(AttendTensor& tensor, std::optional<DType> wish) {
  if (wish && tensor.tensor->dtype() != *wish) {
    require_in_range(tensor, *wish);
    tensor.tensor = TensorRef(convert(tensor.tensor, *wish));
  }
  if (is_float(tensor.tensor->dtype())) return;
  fail_tensor(tensor, "expected float32, float16, bfloat16 or float64, got {}; --dtype converts",
              dtype_name(tensor.tensor->dtype()));
}

void settle_layout(AttendTensor& tensor, const TensorLayout& layout) {
  const int rank = tensor.tensor->rank();
  if (rank < 2 || rank > 4) {
    TensorLayout three = layout;
    three.rank = 3;
    TensorLayout four = layout;
    four.rank = 4;
    fail_tensor(tensor, "expected [length, dim], {} or {}, got shape {}", three.words(),
                four.words(), to_string(tensor.tensor->shape()));
  }
  if (rank != layout.rank) {
    fail_tensor(tensor, "expected {} dimensions as the query has, got shape {}", layout.rank,
                to_string(tensor.tensor->shape()));
  }
  // The engine needs contiguous elements along dim, which Fortran order does not have.
  const TensorView& view = tensor.tensor.view();
  if (view.extent(rank - 1) > 1 && view.strides()[rank - 1] != 1) {
    tensor.tensor = TensorRef(Tensor(view));
  }
  tensor.view = layout.seen(tensor.tensor.view());
}

/// Throws for an extent of `tensor`.
[[noreturn]] void refuse_extent(const AttendTensor& tensor, std::string_view expected,
                                std::int64_t got) {
  fail_tensor(tensor, "expected {}, got {} in shape {}", expected, got,
              to_string(tensor.tensor->shape()));
}

void check_shapes(const AttendInputs& inputs) {
  const TensorView& query = inputs.query.view;
  const TensorView& key = inputs.key.view;
  const TensorView& value = inputs.value.view;
  for (const AttendTensor* other : {&inputs.key, &inputs.value}) {
    const std::int64_t batch = other->view.extent(0);
    if (batch == query.extent(0)) continue;
    refuse_extent(*other, fmt::format("batch {} as the query has", query.extent(0)), batch);
  }
  if (key.extent(3) != query.extent(3)) {
    refuse_extent(inputs.key, fmt::format("dim {} as the query has", query.extent(3)),
                  key.extent(3));
  }
  if (value.extent(2) != key.extent(2)) {
    refuse_extent(inputs.value, fmt::format("length {} as the key has", key.extent(2)),
                  value.extent(2));
  }
  if (value.extent(1) != key.extent(1)) {
    refuse_extent(inputs.value, fmt::format("{} heads as the key has", key.extent(1)),
                  value.extent(1));
  }
  const std::int64_t heads = key.extent(1);
  if (heads > 0 ? query.extent(1) % heads != 0 : query.extent(1) != 0) {
    refuse_extent(inputs.key, fmt::format("a divisor of the query's {} heads", query.extent(1)),
                  heads);
  }
}

void check_types(const AttendInputs& inputs) {
  for (const AttendTensor* other : {&inputs.key, &inputs.value}) {
    if ((other->view.dtype() == DType::kFloat64) == inputs.is_float64()) continue;
    fail_tensor(*other,
                "expected float64 for query, key and value or for none of them, got {} beside the "
                "query's {}; --dtype converts all three",
                dtype_name(other->view.dtype()), dtype_name(inputs.query.view.dtype()));
  }
}

}  // namespace

Shape TensorLayout::shape(std::int64_t batch, std::int64_t heads, std::int64_t length,
                          std::int64_t dim) const {
  if (rank == 2) return {length, dim};
  const auto [first, second] = length_first ? std::pair(length, heads) : std::pair(heads, length);
  if (rank == 3) return {first, second, dim};
  return {batch, first, second, dim};
}

Shape TensorLayout::shape(std::int64_t batch, std::int64_t heads, std::int64_t length) const {
  if (rank == 2) return {length};
  if (rank == 3) return {heads, length};
  return {batch, heads, length};
}

std::string TensorLayout::words() const {
  if (rank == 2) return "[length, dim]";
  return fmt::format("[{}{}, dim]", rank == 4 ? "batch, " : "",
                     length_first ? "length, heads" : "heads, length");
}

std::vector<std::string> RecordedSource::query_tokens(std::int64_t batch) const {
  const TokenList* const list = recording.query_tokens(attention, batch);
  return list == nullptr ? std::vector<std::string>() : list->texts;
}

std::vector<std::string> RecordedSource::key_tokens(std::int64_t batch) const {
  const TokenList* const list = recording.key_tokens(attention, batch);
  return list == nullptr ? std::vector<std::string>() : list->texts;
}

std::string AttendInputs::words() const {
  if (source) {
    return fmt::format("{} of {}", visible(source->attention.name),
                       visible(source->recording.path()));
  }
  return fmt::format("{} to {}", visible(query.name), visible(key.name));
}

AttendInputs recorded_inputs(const Recording& recording, const RecordedAttention& attention,
                             ValueWish wish) {
  if (wish == ValueWish::kNeeded && !attention.value.defined()) {
    throw InvalidArgument(fmt::format(
        "{}: expected values, which a context needs, got {} without: it was recorded without them",
        recording.path(), attention.name));
  }
  const auto tensor = [&](const char* name, const TensorRef& of) {
    AttendTensor result;
    result.name = fmt::format("{}:{}.{}", recording.path(), attention.name, name);
    result.place = result.name;
    result.tensor = of;
    result.view = of.view();
    return result;
  };
  AttendInputs inputs;
  inputs.query = tensor("query", attention.query);
  inputs.key = tensor("key", attention.key);
  inputs.value = attention.value.defined() ? tensor("value", attention.value) : inputs.key;
  inputs.shape = attention.shape();
  inputs.lse = attention.lse;
  inputs.source = RecordedSource{recording, attention};
  return inputs;
}

AttendInputs read_inputs(const AttendArguments& arguments, ValueWish wish) {
  if (!arguments.recorded.file.empty()) {
    const Recording recording = Recording::open(arguments.recorded.file);
    return recorded_inputs(recording, find_recorded(recording, arguments.recorded), wish);
  }
  const InputFile file(arguments.input);
  AttendInputs inputs;
  inputs.query = read_one("query", arguments.query, file);
  inputs.key = read_one("key", arguments.key, file);
  const bool keys_do = wish == ValueWish::kIfGiven && arguments.value.empty();
  inputs.value = keys_do ? inputs.key : read_one("value", arguments.value, file);
  inputs.layout = {.rank = inputs.query.tensor->rank(), .length_first = arguments.length_first};
  for (AttendTensor* tensor : {&inputs.query, &inputs.key, &inputs.value}) {
    settle_layout(*tensor, inputs.layout);
  }
  check_shapes(inputs);
  for (AttendTensor* tensor : {&inputs.query, &inputs.key, &inputs.value}) {
    settle_type(*tensor, arguments.dtype);
    tensor->view = inputs.layout.seen(tensor->tensor.view());
  }
  check_types(inputs);
  inputs.shape = {.batch = inputs.query.view.extent(0),
                  .q_heads = inputs.query.view.extent(1),
                  .kv_heads = inputs.key.view.extent(1),
                  .q_len = inputs.query.view.extent(2),
                  .kv_len = inputs.key.view.extent(2)};
  return inputs;
}

}  // namespace fovea::cli
