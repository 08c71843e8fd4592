// SPDX-License-Identifier: Apache-2.0
//
// The manual page of `fovea map` (map_page.h). What the options are for stands where they are
// added, in map_command.cc and attend_options.cc.

#include "cli/map/page.h"

namespace fovea::cli {
namespace {

constexpr const char* kDescription =
    "Shows the weights softmax(scores) of one head, or of all heads together: a row for each "
    "query, a column for each key. The whole map comes from one fused pass, which pools weights as "
    "it meets them: the matrix is never stored, however long query and key are, and memory is that "
    "of the picture. With --cols the pass is followed by the rectangle alone.\n"
    "\n"
    "Tensors, masks and scores are those of fovea attend, and mean the same; its page tells how "
    "tensors lie in files. Without --output the map is shown in the terminal. A file takes its "
    "name when it is complete; a failure, Ctrl-C or a full disk leaves what was there.";

constexpr const char* kMaps =
    "Of W columns of cells, column c has the keys from floor(c keys / W) to before floor((c + 1) "
    "keys / W); rows likewise. A cell of which the mask hides every pair is masked: transparent in "
    "a PNG, hatched in an SVG or page, a point in the terminal. A cell with a nan or inf among its "
    "scores has a colour that the others do not have.\n"
    "\n"
    "Of all heads together (--head mean or max) a cell is the mean, or the largest, of what it is "
    "in each of the batch item's heads, which are computed one after the other: memory does not "
    "grow with how many they are. It is masked where it is in all of them; the mean of a cell's "
    "pairs is over the heads that see one.\n"
    "\n"
    ".png\tA pixel for each cell, in up to 254 colours. Its text (Title, Description and "
    "fovea:...) says what it shows; identify -verbose and exiftool print it.\n"
    ".svg\tWith axes, labels and a colour bar; light or dark as who looks wishes.\n"
    ".html\tThe same as a page of its own, which tells query, key and weight under the pointer. "
    "Up to 4194304 cells.\n"
    ".npy\tThe cells, [rows, columns], float32. A masked cell is 0, its mean nan.";

constexpr const char* kStats =
    "For each query, over all keys that it sees, whatever --cols says:\n"
    "\n"
    "entropy\tof the weights, in nats\n"
    "effective_keys\tThe exponential of the entropy: as many keys with equal weights would have "
    "it. 0 where the query sees none.\n"
    "maximum, maximum_key\tthe largest weight and its key, the lowest of equals\n"
    "mean_distance, distance_variance\tof the distance of query and key, weighted; positive where "
    "the key comes before\n"
    "first_key\tthe weight of key 0\n"
    "top\tWith --top: keys and weights in descending order; in a .csv as key_1, weight_1 and so "
    "on.\n"
    "\n"
    "What does not exist is null in a .json, and nan or empty in a .csv.\n"
    "\n"
    "With --head mean or max it is the mean, or the largest, of each number over the heads in "
    "which the query sees a key. effective_keys is the exponential of the entropy so found, and a "
    "mean of maxima has no key. --top goes with one head.";

constexpr const char* kEnvironment =
    "COLUMNS, NO_COLOR, TERM, COLORTERM\tThe terminal's width and colours; fovea explain --help "
    "says how.\n"
    "FOVEA_TARGET\tThe SIMD target to compute with; fovea info lists them.\n"
    "OMP_NUM_THREADS\tThreads, where --threads is not given; more of OpenMP's variables hold too.";

constexpr const char* kExamples =
    " fovea map --input layer.npz --causal\n"
    " fovea map --query q.npy --key k.npy --causal --head 3 --output map.png\n"
    " fovea map --input layer.npz --tokens words.txt --output map.html\n"
    " fovea map --input long.safetensors --causal --size 512x512 --reduce max \\\n"
    "     --tone log --colormap magma --output map.svg\n"
    " fovea map --input layer.npz --causal --head mean --output all.png\n"
    " fovea map --input layer.npz --rows 100:200 --cols 0:50 --output part.npy\n"
    " fovea map --input layer.npz --stats rows.csv --top 8";

}  // namespace

Page map_page() {
  return {.synopsis = {"fovea map --query TENSOR --key TENSOR [--batch N] [--head N|HOW]",
                       "          [--rows FIRST:END] [--cols FIRST:END] [--size WIDTHxHEIGHT]",
                       "          [--reduce HOW] [--tone TONE] [--colormap COLORS] [--tokens FILE]",
                       "          [--output FILE] [--stats FILE [--top N]] [OPTION]...",
                       "fovea map --input FILE [OPTION]..."},
          .description = kDescription,
          .sections = {
              {"MAPS", kMaps},
              {"STATISTICS", kStats},
              exit_status_section(),
              {"ENVIRONMENT", kEnvironment},
              {"EXAMPLES", kExamples},
              {"SEE ALSO",
               "fovea tile --help, fovea heads --help, fovea attend --help, fovea explain --help; "
               "docs/files.md"}}};
}

}  // namespace fovea::cli
