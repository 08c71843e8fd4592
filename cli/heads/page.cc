// SPDX-License-Identifier: Apache-2.0
//
// The manual page of `fovea heads` (heads_page.h). What the options are for stands where they are
// added, in heads_command.cc and attend_options.cc.

#include "cli/heads/page.h"

namespace fovea::cli {
namespace {

constexpr const char* kDescription =
    "Tells what each head looks at: a line for each head of queries of each batch item, with means "
    "over its rows, and a name where one fits. It takes a fused pass, which tells each row's "
    "statistics, and a second look at the weights along the diagonal: the matrix is never stored, "
    "however long query and key are.\n"
    "\n"
    "Tensors, masks and scores are those of fovea attend, and mean the same; its page tells how "
    "tensors lie in files. A file takes its name when it is complete; a failure, Ctrl-C or a full "
    "disk leaves what was there.";

constexpr const char* kColumns =
    "Means over the rows that see a key, and give one a weight above 0. Query i stands at position "
    "i + offset (--alignment); a "
    "place where there is no key has weight 0. A narrow terminal has fewer columns, a file has "
    "all, by the names in brackets.\n"
    "\n"
    "entropy\tOf the weights, in nats [entropy].\n"
    "even\tThe entropy as a share of what it would be if all keys that the mask lets a row see had "
    "equal weights [even_entropy, the latter]; - where every row sees one key alone. A sink of "
    "--sinks, beside which weights add up to less, moves it either way.\n"
    "distance\tThe weighted distance of query and key, positive where the key comes before "
    "[mean_distance].\n"
    "largest\tThe largest weight [maximum].\n"
    "first\tThe weight of key 0 [first_key].\n"
    "prev, own, next\tThe weights of the key before the query's position, at it, and after it "
    "[previous_key, own_key, next_key].\n"
    "block\tThe weights of all keys in the block that the query's position is in, of --blocks "
    "equal blocks of the keys [block_diagonal].\n"
    "\n"
    "A head whose rows see no key is nan, and so is one with a nan or inf among its scores; null "
    "in "
    "a .json.";

constexpr const char* kNames =
    "The first that fits:\n"
    "\n"
    "uniform\tThe column even is 0.95 to 1.01.\n"
    "own token, previous token, next token, sink\tThe largest of own, prev, next and first is 0.5 "
    "or more; a sink is what looks at key 0.\n"
    "local blocks\tThe column block is 0.5 or more.\n"
    "one key\tThe column largest is 0.8 or more: each query looks at one key, wherever it is.\n"
    "-\tNone does.";

constexpr const char* kEnvironment =
    "COLUMNS\tThe terminal's width; fovea explain --help says how.\n"
    "FOVEA_TARGET\tThe SIMD target to compute with; fovea info lists them.\n"
    "OMP_NUM_THREADS\tThreads, where --threads is not given; more of OpenMP's variables hold too.";

constexpr const char* kExamples =
    " fovea heads --input layer.npz --causal\n"
    " fovea heads --query q.npy --key k.npy --causal --sort prev\n"
    " fovea heads --input layer.npz --blocks 64 --output heads.csv\n"
    " fovea heads --input layer.npz --causal --json";

}  // namespace

Page heads_page() {
  return {.synopsis = {"fovea heads --query TENSOR --key TENSOR [--blocks N] [--sort ORDER]",
                       "            [--json] [--output FILE] [OPTION]...",
                       "fovea heads --input FILE [OPTION]..."},
          .description = kDescription,
          .sections = {{"COLUMNS", kColumns},
                       {"NAMES", kNames},
                       exit_status_section(),
                       {"ENVIRONMENT", kEnvironment},
                       {"EXAMPLES", kExamples},
                       {"SEE ALSO",
                        "fovea map --help, fovea attend --help; docs/lenses.md, docs/files.md"}}};
}

}  // namespace fovea::cli
