// SPDX-License-Identifier: Apache-2.0
//
// Opens recordings (fovea/recording.h): the description, then the tensors that it names.

#include <algorithm>
#include <cstddef>
#include <set>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fovea/error.h"
#include "fovea/files.h"

#include "core/fail.h"
#include "recording/check.h"
#include "recording/format.h"
#include "text/text_width.h"

namespace fovea {

struct Recording::Content {
  std::string path;
  recording::Heading heading;
  std::vector<RecordedAttention> attentions;
  std::vector<TokenList> tokens;
  recording::TokenIndex token_index;  // of `tokens`

  const TokenList* tokens_of(const std::vector<std::string>& names, std::int64_t batch) const {
    if (names.empty()) return nullptr;
    const std::string& name = names.size() == 1 ? names[0] : names[static_cast<std::size_t>(batch)];
    const auto found = token_index.find(name);
    return found == token_index.end() ? nullptr : found->second;
  }
};

namespace recording {
namespace {

/// Reads tensors of a file by name, with messages that do not repeat the file's name.
class Tensors {
 public:
  explicit Tensors(const TensorFile& file) : file_(file) {
    infos_.reserve(file.tensors().size());
    for (const TensorInfo& info : file.tensors()) infos_.emplace(info.name, &info);
  }

  bool has(const std::string& name) const { return infos_.contains(name); }

  TensorRef read(const std::string& name) const {
    const auto found = infos_.find(name);
    if (found == infos_.end()) fail("expected the tensor {}, got none", shown(name));
    const std::string& unreadable = found->second->unreadable;
    if (!unreadable.empty()) {
      fail("{}: expected a type that Fovea has; {}", shown(name), unreadable);
    }
    try {
      return file_.read(name);
    } catch (const InvalidArgument& error) {
      const std::string message = error.what(), file = file_.path() + ": ";
      fail("{}", message.starts_with(file) ? message.substr(file.size()) : message);
    }
  }

  /// Returns a tensor that options name. Many attentions may name the same one, so it is converted
  /// only once. Messages begin as at_place() expects it.
  TensorRef read_option(const std::string& name) {
    const auto found = options_.find(name);
    if (found != options_.end()) return found->second;
    try {
      return options_.emplace(name, read(name)).first->second;
    } catch (const InvalidArgument& error) {
      fail("tensor: {}", error.what());
    }
  }

 private:
  const TensorFile& file_;
  std::unordered_map<std::string_view, const TensorInfo*> infos_;
  std::unordered_map<std::string, TensorRef> options_;
};

void read_tensors(RecordedAttention& attention, const Tensors& tensors) {
  const auto named = [&](const char* what) { return tensor_name(attention.name, what); };
  attention.query = tensors.read(named("query"));
  attention.key = tensors.read(named("key"));
  attention.lse = tensors.read(named("lse"));
  if (tensors.has(named("value"))) attention.value = tensors.read(named("value"));
}

TensorRef whole_numbers(const Tensors& tensors, const std::string& name) {
  TensorRef tensor = tensors.read(name);
  if (tensor->rank() != 1 || tensor->dtype() != DType::kInt64) {
    fail("{}: expected whole numbers [n], got {} {}", shown(name), dtype_name(tensor->dtype()),
         to_string(tensor->shape()));
  }
  return tensor;
}

std::vector<std::int64_t> numbers_of(const Tensors& tensors, const std::string& name) {
  const TensorRef tensor = whole_numbers(tensors, name);
  std::vector<std::int64_t> numbers;
  numbers.reserve(static_cast<std::size_t>(tensor->size()));
  for (std::int64_t i = 0; i < tensor->size(); ++i) {
    numbers.push_back(tensor->at<std::int64_t>({i}));
  }
  return numbers;
}

std::string bytes_of(const Tensors& tensors, const std::string& name) {
  const TensorRef tensor = whole_numbers(tensors, name);
  std::string bytes;
  bytes.reserve(static_cast<std::size_t>(tensor->size()));
  for (std::int64_t i = 0; i < tensor->size(); ++i) {
    const auto byte = tensor->at<std::int64_t>({i});
    if (byte < 0 || byte > 255) {
      fail("{}: expected bytes, got {} at [{}]", shown(name), byte, i);
    }
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

/// Adds the token lists that attentions name without a description: their tensors are enough.
void add_unlisted_tokens(Description& description, const Tensors& tensors) {
  std::unordered_set<std::string> names;
  for (const TokenList& list : description.tokens) names.insert(list.name);
  for (const RecordedAttention& attention : description.attentions) {
    for (const auto* own : {&attention.query_tokens, &attention.key_tokens}) {
      for (const std::string& name : *own) {
        if (!tensors.has(token_tensor_name(name, "offsets")) || !names.insert(name).second)
          continue;
        description.tokens.push_back({.name = name});
      }
    }
  }
}

/// Reads the texts of a list: all bytes in one tensor, and where each text begins.
void read_tokens(TokenList& list, const Tensors& tensors) {
  const auto named = [&](const char* what) { return token_tensor_name(list.name, what); };
  const auto offsets = numbers_of(tensors, named("offsets"));
  const std::string bytes = bytes_of(tensors, named("text"));
  const auto refuse = [&](std::size_t i, const std::string& expected) {
    fail("{}: expected {}, got {} at [{}]", shown(named("offsets")), expected, offsets[i], i);
  };
  if (offsets.empty()) {
    fail("{}: expected one number more than there are tokens, got none", shown(named("offsets")));
  }
  if (offsets.front() != 0) refuse(0, "0 at the beginning");
  list.texts.reserve(offsets.size() - 1);
  for (std::size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] < offsets[i - 1]) refuse(i, "numbers that do not decrease");
    if (offsets[i] > std::ssize(bytes)) {
      refuse(i, fmt::format("at most {}, where the text ends", bytes.size()));
    }
    const auto begin = static_cast<std::size_t>(offsets[i - 1]);
    list.texts.push_back(bytes.substr(begin, static_cast<std::size_t>(offsets[i]) - begin));
    if (!is_utf8(list.texts.back())) {
      fail("{}: expected UTF-8, got \"{}\" for token {}", shown(named("text")),
           fit(visible(list.texts.back()), kShownColumns), i - 1);
    }
  }
  if (offsets.back() != std::ssize(bytes)) {
    refuse(offsets.size() - 1, fmt::format("{} at the end, where the text ends", bytes.size()));
  }
  check_grid(list);
  if (!tensors.has(named("ids"))) return;
  list.ids = numbers_of(tensors, named("ids"));
  if (list.ids.size() != list.texts.size()) {
    fail("{}: expected {}, one per token, got {}", shown(named("ids")), list.texts.size(),
         list.ids.size());
  }
}

}  // namespace
}  // namespace recording

namespace {

/// "layers.0, layers.1, ... (30 in all)"
std::string listed(const std::vector<RecordedAttention>& attentions) {
  constexpr std::size_t kMost = 12;
  std::vector<std::string> names;
  for (const RecordedAttention& each : attentions) {
    if (names.size() == kMost) break;
    names.push_back(fit(visible(each.name), recording::kShownColumns));
  }
  const std::size_t more = attentions.size() - names.size();
  return fmt::format("{}{}", fmt::join(names, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

/// "0 to 29" or "0, 2, 5".
std::string layers_of(const std::vector<RecordedAttention>& attentions) {
  std::set<std::int64_t> layers;
  for (const RecordedAttention& each : attentions) layers.insert(each.layer);
  const auto count = std::ssize(layers);
  if (count > 2 && *layers.rbegin() - *layers.begin() == count - 1) {
    return fmt::format("{} to {}", *layers.begin(), *layers.rbegin());
  }
  return fmt::format("{}", fmt::join(layers, ", "));
}

}  // namespace

Recording Recording::open(const std::string& path) { return from_file(TensorFile::open(path)); }

Recording Recording::from_file(const TensorFile& file) {
  auto content = std::make_shared<Content>();
  content->path = file.path();
  std::string name;  // of the current attention
  try {
    recording::Description description = recording::read_metadata(file.metadata());
    recording::Tensors tensors(file);
    recording::add_unlisted_tokens(description, tensors);
    content->tokens = std::move(description.tokens);
    for (TokenList& list : content->tokens) recording::read_tokens(list, tensors);
    content->token_index = recording::index_of(content->tokens);
    for (std::size_t i = 0; i < description.attentions.size(); ++i) {
      RecordedAttention& attention = description.attentions[i];
      name = attention.name;
      recording::read_tensors(attention, tensors);
      recording::check_tensors(attention);
      recording::check_fit(attention, attention.shape(), content->token_index);
      attention.options = recording::read_options(
          description.nodes[i], attention,
          [&](const std::string& tensor) { return tensors.read_option(tensor); });
    }
    content->heading = std::move(description.heading);
    content->attentions = std::move(description.attentions);
  } catch (const InvalidArgument& error) {
    if (name.empty()) fail("{}: {}", content->path, error.what());
    fail("{}: {}: {}", content->path, fit(visible(name), recording::kShownColumns), error.what());
  }
  return Recording(std::move(content));
}

const std::string& Recording::path() const { return content_->path; }
const std::string& Recording::model() const { return content_->heading.model; }
const std::string& Recording::source() const { return content_->heading.source; }
const std::string& Recording::written_by() const { return content_->heading.written_by; }
const std::vector<RecordedAttention>& Recording::attentions() const { return content_->attentions; }
const std::vector<TokenList>& Recording::tokens() const { return content_->tokens; }

const RecordedAttention& Recording::find(std::string_view name) const {
  const std::string parts = fmt::format(".{}.", name);
  const RecordedAttention* found = nullptr;
  int matching = 0;
  for (const RecordedAttention& each : attentions()) {
    if (each.name == name) return each;
    if (fmt::format(".{}.", each.name).find(parts) == std::string::npos) continue;
    found = &each;
    ++matching;
  }
  if (matching == 1) return *found;
  fail("{}: expected the name of an attention ({}), got \"{}\"", path(), listed(attentions()),
       fit(visible(name), recording::kShownColumns));
}

const RecordedAttention& Recording::find(std::int64_t layer,
                                         std::optional<AttentionKind> kind) const {
  std::vector<RecordedAttention> matching;
  const RecordedAttention* found = nullptr;
  for (const RecordedAttention& each : attentions()) {
    if (each.layer != layer || (kind && each.kind != *kind)) continue;
    matching.push_back(each);
    found = &each;
  }
  const std::string which =
      kind ? fmt::format("{} attention", attention_kind_name(*kind)) : std::string("attention");
  if (found == nullptr) {
    fail("{}: expected a layer with {} (layers {}), got {}", path(), which, layers_of(attentions()),
         layer);
  }
  if (matching.size() > 1) {
    fail("{}: expected a layer with one {}, got {}, which has {}", path(), which, layer,
         listed(matching));
  }
  return *found;
}

const TokenList* Recording::query_tokens(const RecordedAttention& of, std::int64_t batch) const {
  return content_->tokens_of(of.query_tokens, batch);
}

const TokenList* Recording::key_tokens(const RecordedAttention& of, std::int64_t batch) const {
  return content_->tokens_of(of.key_tokens, batch);
}

bool is_recording(const std::string& path) {
  try {
    const TensorFile file = TensorFile::open(path);
    const auto& metadata = file.metadata();
    return std::any_of(metadata.begin(), metadata.end(),
                       [](const auto& entry) { return entry.first == recording::kVersionKey; });
  } catch (const InvalidArgument&) {
    return false;
  } catch (const IoError&) {
    return false;
  }
}

}  // namespace fovea
