// SPDX-License-Identifier: Apache-2.0
//
// Writes recordings (fovea/recording.h): checks and describes what the spool stores.

#include <algorithm>
#include <cmath>
#include <functional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "fovea/info.h"

#include "core/fail.h"
#include "files/file_format.h"
#include "recording/check.h"
#include "recording/format.h"
#include "recording/tensor_spool.h"
#include "text/text_width.h"

namespace fovea {
namespace {

constexpr int kLengthDim = 2;  // of query, key, value and lse

}  // namespace

class RecordingWriter::State {
 public:
  State(const std::string& path, const RecordingOptions& options)
      : spool_(checked(path)),
        heading_{options.model, options.source, "fovea " + build_info().version} {
    if (options.store && (!is_float(*options.store) || *options.store == DType::kFloat64)) {
      fail_argument("store", "expected float32, bfloat16 or float16, got {}",
                    dtype_name(*options.store));
    }
    store_ = options.store;
    check_text("model", options.model);
    check_text("source", options.source);
  }

  /// Returns the path, unless its ending belongs to another format, as which it would be read.
  static const std::string& checked(const std::string& path) {
    const auto format = files::format_by_ending(path);
    if (format && *format != FileFormat::kSafetensors) {
      fail_argument("path", "expected a name that ends in .safetensors, got \"{}\"", path);
    }
    return path;
  }

  void add(const RecordedAttention& attention) {
    if (attention.name.empty()) fail_argument("name", "expected a name, got an empty one");
    if (find(attention.name) != nullptr) {
      fail_argument("name", "expected a name used once, got {} again",
                    recording::shown(attention.name));
    }
    check_description(attention);
    recording::check_tensors(attention);
    const TensorView& query = attention.query;
    check_options(attention.options, attention.shape(), query.dtype(), query.extent(3));
    write(attention);
    places_.emplace(attention.name, attentions_.size());
    attentions_.push_back(described(attention));
  }

  void append(const RecordedAttention& part) {
    if (find(part.name) == nullptr) {
      fail_argument("name", "expected an attention that was added, got {}",
                    recording::shown(part.name));
    }
    recording::check_tensors(part);
    for_each_tensor(part, [&](std::string_view what, const TensorView& tensor) {
      const std::string name = recording::tensor_name(part.name, what);
      if (spool_.has(name) != tensor.defined()) {
        fail("{}: expected {}, as in the first part", recording::shown(name),
             spool_.has(name) ? "a tensor" : "no tensor");
      }
      if (!tensor.defined()) return;
      Shape wanted = spool_.shape(name);
      wanted[kLengthDim] = tensor.extent(kLengthDim);
      if (tensor.shape() != wanted || stored_type(what, tensor) != spool_.dtype(name)) {
        fail("{}: expected {} {}, as the first part has, got {} {}", recording::shown(name),
             dtype_name(spool_.dtype(name)), to_string(wanted),
             dtype_name(stored_type(what, tensor)), to_string(tensor.shape()));
      }
    });
    write(part);
  }

  void describe(const RecordedAttention& attention) {
    RecordedAttention* const own = find(attention.name);
    if (own == nullptr) {
      fail_argument("name", "expected an attention that was added, got {}",
                    recording::shown(attention.name));
    }
    check_description(attention);
    const std::string query = recording::tensor_name(attention.name, "query");
    check_options(attention.options, shape_of(attention.name), spool_.dtype(query),
                  spool_.shape(query)[3]);
    *own = described(attention);
  }

  void add(const TokenList& tokens) {
    if (tokens.name.empty()) fail_argument("tokens", "expected a name, got an empty one");
    check_text("tokens", tokens.name);
    recording::check_grid(tokens);
    if (!tokens.ids.empty() && tokens.ids.size() != tokens.texts.size()) {
      fail_argument("tokens", "expected one id per text ({}), got {}", tokens.texts.size(),
                    tokens.ids.size());
    }
    for (std::size_t i = 0; i < tokens.texts.size(); ++i) {
      if (!is_utf8(tokens.texts[i])) {
        fail_argument("tokens", "expected UTF-8, got \"{}\" for token {}",
                      fit(visible(tokens.texts[i]), recording::kShownColumns), i);
      }
    }
    if (!token_names_.insert(tokens.name).second) {
      fail_argument("tokens", "expected a name used once, got {} again",
                    recording::shown(tokens.name));
    }
    tokens_.push_back(tokens);
  }

  std::int64_t bytes() const { return static_cast<std::int64_t>(spool_.bytes()); }

  void finish() {
    const recording::TokenIndex tokens = recording::index_of(tokens_);
    for (const RecordedAttention& each : attentions_) {
      const ProblemShape shape = shape_of(each.name);
      try {
        recording::check_fit(each, shape, tokens);
        validate(each.options, shape);
      } catch (const InvalidArgument& error) {
        fail("{}: {}", recording::shown(each.name), error.what());
      }
    }
    const recording::Metadata metadata = recording::write_metadata(
        heading_, attentions_, tokens_,
        [this](const RecordedAttention& of, std::string_view what, const TensorRef& tensor) {
          return option_tensor(recording::tensor_name(of.name, what), tensor);
        });
    for (const TokenList& list : tokens_) write(list);
    spool_.finish(metadata);
    is_finished_ = true;
  }
  bool is_finished() const { return is_finished_; }

 private:
  static void for_each_tensor(
      const RecordedAttention& attention,
      const std::function<void(std::string_view what, const TensorView& tensor)>& visit) {
    visit("lse", attention.lse);
    visit("query", attention.query);
    visit("key", attention.key);
    visit("value", attention.value);
  }

  static void check_text(const char* what, const std::string& text) {
    if (!is_utf8(text)) {
      fail_argument(what, "expected UTF-8, got {}", recording::shown(text));
    }
  }

  static void check_description(const RecordedAttention& attention) {
    check_text("name", attention.name);
    if (attention.layer < 0 || attention.layer > recording::kMaxIndex) {
      fail_argument("layer", "expected 0 to {}, got {}", recording::kMaxIndex, attention.layer);
    }
  }

  static void check_options(const AttentionOptions& options, const ProblemShape& shape,
                            DType query_type, std::int64_t head_dim) {
    if (options.dropout.probability > 0) {
      fail_argument("dropout", "expected none in a recording, got {}", options.dropout.probability);
    }
    if (options.sequences.count() > 0) {
      fail_argument("sequences",
                    "expected none in a recording, which has documents() instead, "
                    "got {}",
                    options.sequences.count());
    }
    recording::check_options(options, shape, query_type, head_dim);
  }

  /// Returns the description, with the tensors that the options refer to, and without the others.
  static RecordedAttention described(const RecordedAttention& attention) {
    RecordedAttention own = attention;
    own.query = own.key = own.value = own.lse = {};
    return own;
  }

  RecordedAttention* find(std::string_view name) {
    const auto found = places_.find(std::string(name));
    return found == places_.end() ? nullptr : &attentions_[found->second];
  }

  ProblemShape shape_of(std::string_view name) const {
    const Shape query = spool_.shape(recording::tensor_name(name, "query"));
    const Shape key = spool_.shape(recording::tensor_name(name, "key"));
    return {.batch = query[0],
            .q_heads = query[1],
            .kv_heads = key[1],
            .q_len = query[kLengthDim],
            .kv_len = key[kLengthDim]};
  }

  DType stored_type(std::string_view what, const TensorView& tensor) const {
    if (what != "lse") return store_.value_or(tensor.dtype());
    return store_ ? DType::kFloat32 : tensor.dtype();
  }

  void write(const RecordedAttention& attention) {
    for_each_tensor(attention, [&](std::string_view what, const TensorView& tensor) {
      if (!tensor.defined()) return;
      const std::string name = recording::tensor_name(attention.name, what);
      const DType type = stored_type(what, tensor);
      if (type == tensor.dtype()) return spool_.append(name, tensor, kLengthDim);
      const Tensor rounded = convert(tensor, type);
      require_range(name, tensor, rounded);
      spool_.append(name, rounded, kLengthDim);
    });
  }

  template <class T>
  static bool has_infinity(const Tensor& tensor) {
    const auto numbers = tensor.span<T>();
    return std::any_of(numbers.begin(), numbers.end(),
                       [](T number) { return std::isinf(static_cast<double>(number)); });
  }

  static bool has_infinity(const Tensor& tensor) {
    if (tensor.dtype() == DType::kFloat16) return has_infinity<Float16>(tensor);
    if (tensor.dtype() == DType::kBFloat16) return has_infinity<BFloat16>(tensor);
    return has_infinity<float>(tensor);
  }

  /// Throws InvalidArgument if a finite number has become infinite.
  static void require_range(const std::string& name, const TensorView& exact,
                            const Tensor& rounded) {
    if (!has_infinity(rounded)) return;
    // Products of query and key would be NaN.
    for_each_index(exact.shape(), [&](const Index& at) {
      if (!std::isinf(rounded.value(at)) || std::isinf(exact.value(at))) return;
      fail("{}: expected numbers that fit {}, got {}", recording::shown(name),
           dtype_name(rounded.dtype()), exact.value(at));
    });
  }

  /// Stores a tensor of the options, unless one with the same elements is there. Returns its name.
  std::string option_tensor(const std::string& wish, const TensorRef& tensor) {
    const Tensor elements(tensor.view());
    const std::string_view bytes(
        static_cast<const char*>(elements.view().data()),
        static_cast<std::size_t>(elements.size()) * dtype_size(elements.dtype()));
    const std::size_t hash = std::hash<std::string_view>{}(bytes);
    const auto [begin, end] = option_tensors_.equal_range(hash);
    for (auto at = begin; at != end; ++at) {
      if (spool_.holds(at->second, elements)) return at->second;
    }
    std::string name = wish;
    for (int number = 2; spool_.has(name); ++number) name = fmt::format("{}.{}", wish, number);
    spool_.append(name, elements);
    option_tensors_.emplace(hash, name);
    return name;
  }

  void write(const TokenList& list) {
    const auto append = [&](const char* what, const std::vector<std::int64_t>& numbers) {
      spool_.append(recording::token_tensor_name(list.name, what),
                    Tensor::from({static_cast<std::int64_t>(numbers.size())}, numbers));
    };
    std::string text;
    std::vector<std::int64_t> offsets = {0};
    for (const std::string& each : list.texts) {
      text += each;
      offsets.push_back(static_cast<std::int64_t>(text.size()));
    }
    if (!list.ids.empty()) append("ids", list.ids);
    append("offsets", offsets);
    spool_.add_bytes(recording::token_tensor_name(list.name, "text"), text);
  }

  recording::TensorSpool spool_;
  recording::Heading heading_;
  std::optional<DType> store_;
  std::vector<RecordedAttention> attentions_;            // without tensors
  std::unordered_map<std::string, std::size_t> places_;  // in attentions_, by name
  std::vector<TokenList> tokens_;
  std::unordered_set<std::string> token_names_;
  std::unordered_multimap<std::size_t, std::string> option_tensors_;  // names, by the hash
  bool is_finished_ = false;
};

RecordingWriter::RecordingWriter(const std::string& path, const RecordingOptions& options)
    : state_(std::make_unique<State>(path, options)) {}
RecordingWriter::RecordingWriter(RecordingWriter&&) noexcept = default;
RecordingWriter& RecordingWriter::operator=(RecordingWriter&&) noexcept = default;
RecordingWriter::~RecordingWriter() = default;

RecordingWriter::State& RecordingWriter::unfinished() {
  if (!state_ || state_->is_finished()) {
    throw InvalidArgument("recording", "expected one that is not finished and was not moved");
  }
  return *state_;
}

void RecordingWriter::add(const RecordedAttention& attention) { unfinished().add(attention); }
void RecordingWriter::append(const RecordedAttention& part) { unfinished().append(part); }
void RecordingWriter::describe(const RecordedAttention& attention) {
  unfinished().describe(attention);
}
void RecordingWriter::add(const TokenList& tokens) { unfinished().add(tokens); }
std::int64_t RecordingWriter::bytes() const { return state_ ? state_->bytes() : 0; }
void RecordingWriter::finish() { unfinished().finish(); }

}  // namespace fovea
