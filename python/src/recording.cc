// SPDX-License-Identifier: Apache-2.0
//
// Recordings: the files that python/fovea/_recording reads and writes.

#include "fovea/recording.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays/arrays.h"
#include "arrays/calls.h"
#include "arrays/dlpack.h"
#include "arrays/new_arrays.h"
#include "attention/options.h"
#include "attention/problem.h"
#include "functions.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fovea::python {
namespace {

/// Converts the options of attention(), without packed sequences, dropout and threads.
AttentionOptions options_of(const nb::dict& given) {
  Parameters parameters{};
  for (const auto& [key, value] : given) {
    const auto name = nb::cast<std::string>(key);
    const auto* const first = kParameterNames.begin() + kMask;
    const auto* const last = kParameterNames.begin() + kAlignment + 1;
    const auto* const found =
        std::find_if(first, last, [&](const char* own) { return name == own; });
    if (found == last) raise_type_error("options: expected those of attention(), got \"{}\"", name);
    if (!value.is_none())
      parameters[static_cast<std::size_t>(found - kParameterNames.begin())] = value.ptr();
  }
  ProblemOptions problem(parameters);
  // Read when the file is completed, after the caller has let go of the array.
  if (problem.bias) problem.options.score.bias = keep_array(parameters[kBias], {.name = "bias"});
  return problem.options;
}

std::optional<DType> store_of(const std::string& name) {
  if (name.empty()) return std::nullopt;
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    if (dtype_name(dtype) == name) return dtype;
  }
  raise_value_error("store: expected \"float32\", \"float16\" or \"bfloat16\", got \"{}\"", name);
}

AttentionKind kind_of(const std::string& name) {
  for (const AttentionKind kind : {AttentionKind::kSelf, AttentionKind::kEncoder,
                                   AttentionKind::kDecoder, AttentionKind::kCross}) {
    if (attention_kind_name(kind) == name) return kind;
  }
  raise_value_error("kind: expected \"self\", \"encoder\", \"decoder\" or \"cross\", got \"{}\"",
                    name);
}

/// Query, key, lse and value of one call, which may be arrays of any library.
class Arrays {
 public:
  Arrays(nb::handle query, nb::handle key, nb::handle lse, nb::handle value)
      : query_(query.ptr(), {.name = "query"}),
        key_(key.ptr(), {.name = "key"}),
        lse_(lse.ptr(), {.name = "lse"}) {
    if (!value.is_none()) value_.emplace(value.ptr(), ArrayRequest{.name = "value"});
  }

  void set(RecordedAttention& attention) const {
    for (const Array* array : {&query_, &key_}) {
      check_rank(*array, array == &query_ ? "query" : "key");
    }
    attention.query = with_rank_4(query_.view());
    attention.key = with_rank_4(key_.view());
    if (lse_.rank() < 1 || lse_.rank() > 3) {
      raise_value_error("lse: expected [batch, q_heads, q_len], got {}",
                        to_string(lse_.view().shape()));
    }
    attention.lse = with_rank_3(lse_.view());
    if (!value_) return;
    check_rank(*value_, "value");
    attention.value = with_rank_4(value_->view());
  }

 private:
  Array query_, key_, lse_;
  std::optional<Array> value_;
};

class Writer {
 public:
  Writer(const std::string& path, const std::string& model, const std::string& source,
         const std::string& store)
      : writer_(std::in_place, path,
                RecordingOptions{.model = model, .source = source, .store = store_of(store)}) {}

  RecordingWriter& open() {
    if (!writer_)
      throw std::runtime_error(
          "recording: expected one that is being written, got one that is complete");
    return *writer_;
  }
  void close() { writer_.reset(); }

 private:
  std::optional<RecordingWriter> writer_;
};

RecordedAttention described(const std::string& name, std::int64_t layer, const std::string& kind,
                            std::vector<std::string> query_tokens,
                            std::vector<std::string> key_tokens, std::vector<std::int64_t> heads,
                            const nb::dict& options) {
  return {.name = name,
          .layer = layer,
          .kind = kind_of(kind),
          .query_tokens = std::move(query_tokens),
          .key_tokens = std::move(key_tokens),
          .heads = std::move(heads),
          .options = options_of(options)};
}

/// Returns a tensor of a recording as a NumPy array, or as an array with DLPack if NumPy lacks the
/// type. The array keeps the mapping of the file alive.
nb::object recorded_array(const TensorRef& tensor) {
  if (!tensor.defined()) return nb::none();
  const nb::capsule owner(new TensorRef(tensor),
                          [](void* kept) noexcept { delete static_cast<TensorRef*>(kept); });
  if (tensor->dtype() != DType::kBFloat16) return nb::steal(numpy_view(tensor, owner.ptr()));
  std::vector<std::size_t> shape;
  for (const std::int64_t extent : tensor->shape())
    shape.push_back(static_cast<std::size_t>(extent));
  return nb::cast(nb::ndarray<nb::ro, nb::array_api>(
      tensor->data(), shape.size(), shape.data(), owner, nullptr, dlpack_type(DType::kBFloat16)));
}

nb::dict options_dict(const AttentionOptions& options) {
  nb::dict found;
  const ScoreOptions& score = options.score;
  if (!options.mask.allows_all()) found["mask"] = options.mask;
  if (score.scale) found["scale"] = *score.scale;
  if (score.softcap > 0) found["softcap"] = score.softcap;
  if (score.bias.defined()) found["bias"] = recorded_array(score.bias);
  if (score.alibi) {
    found["alibi"] = score.alibi->slopes.empty() ? nb::cast(true) : nb::cast(score.alibi->slopes);
  }
  if (score.relative) found["relative"] = *score.relative;
  if (!score.sinks.empty()) found["sinks"] = score.sinks;
  const std::vector<std::int64_t>& offsets = options.alignment.values();
  if (offsets.size() == 1) found["alignment"] = offsets.front();
  if (offsets.size() > 1) found["alignment"] = offsets;
  return found;
}

nb::dict read_recording(nb::handle path) {
  const Recording recording = Recording::open(path_of(path.ptr()));
  nb::list attentions;
  for (const RecordedAttention& each : recording.attentions()) {
    nb::dict found;
    found["name"] = each.name;
    found["layer"] = each.layer;
    found["kind"] = std::string(attention_kind_name(each.kind));
    found["query_tokens"] = each.query_tokens;
    found["key_tokens"] = each.key_tokens;
    found["heads"] = each.heads;
    found["query"] = recorded_array(each.query);
    found["key"] = recorded_array(each.key);
    found["lse"] = recorded_array(each.lse);
    found["value"] = recorded_array(each.value);
    found["options"] = options_dict(each.options);
    attentions.append(found);
  }
  nb::list tokens;
  for (const TokenList& each : recording.tokens()) {
    nb::dict found;
    found["name"] = each.name;
    found["texts"] = each.texts;
    found["ids"] = each.ids;
    found["grid"] = nb::make_tuple(each.grid_rows, each.grid_columns);
    tokens.append(found);
  }
  nb::dict found;
  found["file"] = recording;
  const std::string& name = recording.path();
  found["path"] = nb::steal(
      PyUnicode_DecodeFSDefaultAndSize(name.data(), static_cast<Py_ssize_t>(name.size())));
  found["model"] = recording.model();
  found["source"] = recording.source();
  found["written_by"] = recording.written_by();
  found["attentions"] = attentions;
  found["tokens"] = tokens;
  return found;
}

}  // namespace

void add_recording(nb::module_& module) {
  nb::class_<Writer>(module, "_RecordingWriter")
      .def(
          "__init__",
          [](Writer* self, nb::handle path, const std::string& model, const std::string& source,
             const std::string& store) {
            new (self) Writer(path_of(path.ptr()), model, source, store);
          },
          "path"_a, nb::kw_only(), "model"_a = "", "source"_a = "", "store"_a = "")
      .def(
          "add",
          [](Writer& self, nb::handle query, nb::handle key, nb::handle lse, nb::handle value,
             const std::string& name, std::int64_t layer, const std::string& kind,
             const std::vector<std::string>& query_tokens,
             const std::vector<std::string>& key_tokens, const std::vector<std::int64_t>& heads,
             const nb::dict& options) {
            RecordedAttention attention =
                described(name, layer, kind, query_tokens, key_tokens, heads, options);
            const Arrays arrays(query, key, lse, value);
            arrays.set(attention);
            self.open().add(attention);
          },
          "query"_a, "key"_a, "lse"_a, "value"_a = nb::none(), nb::kw_only(), "name"_a,
          "layer"_a = 0, "kind"_a = "self", "query_tokens"_a = std::vector<std::string>(),
          "key_tokens"_a = std::vector<std::string>(), "heads"_a = std::vector<std::int64_t>(),
          "options"_a = nb::dict())
      .def(
          "append",
          [](Writer& self, nb::handle query, nb::handle key, nb::handle lse, nb::handle value,
             const std::string& name) {
            RecordedAttention part{.name = name};
            const Arrays arrays(query, key, lse, value);
            arrays.set(part);
            self.open().append(part);
          },
          "query"_a, "key"_a, "lse"_a, "value"_a = nb::none(), nb::kw_only(), "name"_a)
      .def(
          "describe",
          [](Writer& self, const std::string& name, std::int64_t layer, const std::string& kind,
             const std::vector<std::string>& query_tokens,
             const std::vector<std::string>& key_tokens, const std::vector<std::int64_t>& heads,
             const nb::dict& options) {
            self.open().describe(
                described(name, layer, kind, query_tokens, key_tokens, heads, options));
          },
          nb::kw_only(), "name"_a, "layer"_a = 0, "kind"_a = "self",
          "query_tokens"_a = std::vector<std::string>(),
          "key_tokens"_a = std::vector<std::string>(), "heads"_a = std::vector<std::int64_t>(),
          "options"_a = nb::dict())
      .def(
          "add_tokens",
          [](Writer& self, const std::string& name, const std::vector<std::string>& texts,
             const std::vector<std::int64_t>& ids, std::pair<std::int64_t, std::int64_t> grid) {
            self.open().add(TokenList{.name = name,
                                      .ids = ids,
                                      .texts = texts,
                                      .grid_rows = grid.first,
                                      .grid_columns = grid.second});
          },
          "name"_a, "texts"_a, "ids"_a = std::vector<std::int64_t>(),
          "grid"_a = std::pair<std::int64_t, std::int64_t>(0, 0))
      .def_prop_ro("bytes", [](Writer& self) { return self.open().bytes(); })
      .def("finish",
           [](Writer& self) {
             self.open().finish();
             self.close();
           })
      .def("close", &Writer::close);
  module.def("_read_recording", read_recording, "path"_a.none());
}

}  // namespace fovea::python
