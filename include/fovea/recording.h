// SPDX-License-Identifier: Apache-2.0
//
// Recordings: query, key and lse of the attentions of a model, with the options of the problem and
// the tokens, in one .safetensors file. Every weight of every head can be recomputed from it, so
// the file grows with the number of tokens, not with its square. docs/recordings.md describes the
// format.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/attention_options.h"
#include "fovea/export.h"
#include "fovea/files.h"
#include "fovea/mask.h"
#include "fovea/tensor.h"
#include "fovea/weights.h"

namespace fovea {

/// The tokens along the queries or keys of an attention.
struct TokenList {
  std::string name;
  std::vector<std::int64_t> ids = {};   ///< one per token, or empty
  std::vector<std::string> texts = {};  ///< one per token, UTF-8
  /// Rows and columns of the patches of an image; 0 and 0 for text.
  std::int64_t grid_rows = 0, grid_columns = 0;

  std::int64_t size() const { return static_cast<std::int64_t>(texts.size()); }
};

/// Which part of a model an attention belongs to: the only stack of layers, the encoder or decoder
/// of a model with two, or the decoder's attention to the encoder.
enum class AttentionKind : std::uint8_t { kSelf, kEncoder, kDecoder, kCross };

/// Returns "self", "encoder", "decoder" or "cross".
FOVEA_API std::string_view attention_kind_name(AttentionKind kind);

/// One attention of a model.
struct RecordedAttention {
  std::string name;        ///< unique in a recording, not empty: "layers.0"
  std::int64_t layer = 0;  ///< 0 or more
  AttentionKind kind = AttentionKind::kSelf;
  /// Names of token lists: none, one for all batch items, or one per batch item. A list has as many
  /// tokens as there are queries (or keys).
  std::vector<std::string> query_tokens = {};
  std::vector<std::string> key_tokens = {};
  /// The indices in the model of the query heads recorded, ascending; empty: all heads.
  std::vector<std::int64_t> heads = {};
  AttentionOptions options = {};  ///< mask, score and alignment; no dropout, no packed sequences

  TensorRef query = {};  ///< [batch, q_heads,  q_len,  head_dim]  the operand of query . key
  TensorRef key = {};    ///< [batch, kv_heads, kv_len, head_dim]  grouped heads are not repeated
  TensorRef lse = {};    ///< [batch, q_heads,  q_len]   float32, of whole rows
  TensorRef value = {};  ///< [batch, kv_heads, kv_len, value_dim]  optional

  /// Returns the arguments of attention_weights() and its relatives.
  WeightInputs inputs() const { return {query, key, lse}; }
  FOVEA_API ProblemShape shape() const;
  /// Returns the index in the model of a recorded query head.
  std::int64_t model_head(std::int64_t head) const {
    return heads.empty() ? head : heads[static_cast<std::size_t>(head)];
  }
};

/// A recording opened for reading. Cheap to copy; copies share the file.
///
/// Opening  reads and checks everything except the numbers of queries, keys, values and lse, which
///          are memory-mapped and read in place.
/// Lifetime tensors keep the mapping alive, as those of TensorFile do.
/// Threads  re-entrant.
/// Errors   throws IoError if the file cannot be read, and InvalidArgument if it is malformed, is
///          not a recording, or has a newer major version of the format. The message begins with
///          the file's name.
class FOVEA_API Recording {
 public:
  static Recording open(const std::string& path);
  /// Returns the recording in a file that is already open.
  static Recording from_file(const TensorFile& file);

  const std::string& path() const;
  const std::string& model() const;       ///< the model's name; may be empty
  const std::string& source() const;      ///< what was recorded, in words; may be empty
  const std::string& written_by() const;  ///< "fovea 0.1.0"
  /// Returns the attentions in the order of the file.
  const std::vector<RecordedAttention>& attentions() const;
  const std::vector<TokenList>& tokens() const;

  /// Returns the attention with this name or, if there is none, the only one whose name contains it
  /// between dots: "layers.13" stands for "model.layers.13.self_attn". Throws InvalidArgument that
  /// lists what is there.
  const RecordedAttention& find(std::string_view name) const;
  /// Returns the only attention with this layer and kind (any kind if not set). Throws
  /// InvalidArgument that lists what is there if there is none or more than one.
  const RecordedAttention& find(std::int64_t layer, std::optional<AttentionKind> kind = {}) const;

  /// Return the tokens of the queries or keys of a batch item; null if there are none.
  const TokenList* query_tokens(const RecordedAttention& of, std::int64_t batch = 0) const;
  const TokenList* key_tokens(const RecordedAttention& of, std::int64_t batch = 0) const;

 private:
  struct Content;
  explicit Recording(std::shared_ptr<const Content> content) : content_(std::move(content)) {}
  std::shared_ptr<const Content> content_;
};

/// Returns whether a file is a recording: a readable .safetensors file with the entry
/// "fovea.recording" in its metadata. False for any other file, also for one that does not exist.
FOVEA_API bool is_recording(const std::string& path);

struct RecordingOptions {
  std::string model = {};
  std::string source = {};
  /// The type in which query, key and value are stored: kFloat32, kBFloat16 or kFloat16; not set:
  /// their own.
  std::optional<DType> store = {};
};

/// Writes a recording. Tensors of attentions are written at once, to a temporary file next to the
/// path, so memory does not grow. Tensors that the options refer to (biases, dense masks, tables)
/// are written in finish() and must exist until then.
///
/// Appending extends an attention by further queries and keys, as text generation computes them.
/// finish() then joins the parts and writes every number a second time.
///
/// Errors   throws InvalidArgument naming the attention, the expected and the actual value;
///          OutputError if the file cannot be written. If an error occurs or finish() is not
///          called, an existing file at the path is unchanged and the temporary file is removed.
class FOVEA_API RecordingWriter {
 public:
  explicit RecordingWriter(const std::string& path, const RecordingOptions& options = {});
  RecordingWriter(RecordingWriter&&) noexcept;
  RecordingWriter& operator=(RecordingWriter&&) noexcept;
  ~RecordingWriter();

  /// Adds an attention, all of it or its first part. Its token lists may be added later.
  void add(const RecordedAttention& attention);
  /// Appends queries (with their lse) and keys (with their values) to the attention of this name.
  /// Either may have length 0. Only name and tensors are used.
  void append(const RecordedAttention& part);
  /// Replaces everything about the attention of this name apart from its tensors; the options are
  /// those of the whole problem so far.
  void describe(const RecordedAttention& attention);
  void add(const TokenList& tokens);

  /// Returns the number of bytes of all tensors so far.
  std::int64_t bytes() const;

  /// Completes the file and gives it its name. Nothing can be added afterwards.
  void finish();

 private:
  class State;
  State& unfinished();
  std::unique_ptr<State> state_;
};

}  // namespace fovea
