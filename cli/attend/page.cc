// SPDX-License-Identifier: Apache-2.0
//
// The manual page of `fovea attend` (attend_page.h). What the options are for stands where they are
// added, in attend_command.cc.

#include "cli/attend/page.h"

namespace fovea::cli {
namespace {

constexpr const char* kDescription =
    "Computes context = softmax(scores) value, where scores = query . key times the scale, exactly "
    "and in one fused pass on all CPUs, and writes it to a file. The scores of all queries and "
    "keys "
    "are never stored: memory is that of the tensors.\n"
    "\n"
    "What is computed is said in a few lines on standard output, with times and speed. An output "
    "takes its name when it is complete, and replaces a file of that name with all that was in it; "
    "a failure, Ctrl-C or a full disk leaves that as it was (of two files, each by itself). It may "
    "be one of the inputs.";

constexpr const char* kTensors =
    "A TENSOR is a file and, where the file has several, a name in it:\n"
    "\n"
    "query.npy\tthe tensor of an .npy\n"
    "FILE:NAME\tone of an .npz or .safetensors; the only one needs no name\n"
    "FILE:bf16\telements of two bytes without a type, read as bfloat16, which is how NumPy writes "
    "them; FILE:NAME:bf16 in an .npz\n"
    "-\tan .npy on standard input, for one of the options\n"
    "\n"
    "Files are mapped into memory, and read once, by the computation itself; what is in an .npz, "
    "in "
    "Fortran order or converted is copied first.\n"
    "\n"
    "Query, key and value have 4 dimensions, [batch, heads, length, dim]; 3, [heads, length, dim]; "
    "or 2, [length, dim]; all three the same number, and so have the outputs, lse less the dim. "
    "With --layout blhd heads and length change places in query, key, value and context: [batch, "
    "length, heads, dim] and [length, heads, dim]. Masks, biases and lse have the heads first in "
    "either layout.\n"
    "\n"
    "Types may be mixed: float32, float16 and bfloat16, each as it is; or all are float64. "
    "Integers "
    "and bool want --dtype.";

constexpr const char* kMasks =
    "A query sees a key if every rule allows it, but for --prefix, which joins --causal: (causal "
    "or prefix) and window and documents and key-lengths and mask. A query that sees no key has "
    "the context 0 and the lse -inf, or its sink.\n"
    "\n"
    "Positions, for --causal, --window, --alibi and --relative, count from --alignment: query i "
    "stands at key i + OFFSET. By default the last query stands at the last key, or at the last "
    "real one of its batch item with --key-lengths. 2 queries, 5 keys, --causal:\n"
    "\n"
    "     bottom-right        top-left\n"
    "     1 1 1 1 0           1 0 0 0 0\n"
    "     1 1 1 1 1           1 1 0 0 0\n"
    "\n"
    "A score is query . key; then scale, softcap, bias, ALiBi and table, and mask, in this order. "
    "Numbers such as 3,4 are taken for numbers; a file of that name is ./3,4.";

constexpr const char* kReport =
    "query, key, value\ttype, shape and file\n"
    "context, lse\tthe same, and where it was written\n"
    "mask, scores\tthe rules, in words\n"
    "time\tof the computation, with the files being read; the threads it might use, and the SIMD "
    "target. A few queries for each head of keys are computed \"as in decoding\".\n"
    "speed\tUseful work in that time: 2 (dim + value dim) flop for each pair of a query and a key "
    "that it sees. After calls of 0.1 s and more also the share of what float32 multiply-adds "
    "reach on this CPU at best, measured for 0.03 s.\n"
    "verified\tHow many rows were compared, the largest difference from the reference in float64, "
    "and how large it may be: docs/numerics.md says why. Up to 64 rows, from the first to the "
    "last; "
    "fewer, but these two, where they are long.\n"
    "\n"
    "While it takes long, a terminal shows how far it is, the rate and the time left. Where the "
    "output is on standard output, nothing is said; with --verify or --json it is said on standard "
    "error.";

constexpr const char* kJson =
    "One object. Times are in seconds, and what does not apply is null.\n"
    "\n"
    "version\tof fovea\n"
    "query, key, value\t{file, dtype, shape}\n"
    "context, lse\tthe same; file is null where it is not written\n"
    "layout\t\"bhld\" or \"blhd\"\n"
    "problem\t{batch, q_heads, kv_heads, q_len, kv_len, head_dim, value_dim, mask, alignment, "
    "scale, softcap, bias, alibi, relative, sinks}; the mask as C++ has it, a softcap of 0 for "
    "none, "
    "the last four whether they are there\n"
    "engine\t\"forward\", \"decode\" or \"reference\"\n"
    "target, threads\tthe SIMD target, and the threads it might use\n"
    "flop\tuseful; an estimate from some rows where to look at all of them would take seconds\n"
    "read_s, attend_s, write_s\twhat opening and converting, computing, and writing took\n"
    "gflops, ceiling_gflops, share\tthe speed, and what it is a share of\n"
    "verify\t{rows, context, lse}, the latter {error, allowed}";

constexpr const char* kEnvironment =
    "FOVEA_TARGET\tThe SIMD target to compute with; fovea info lists them.\n"
    "OMP_NUM_THREADS\tThreads, where --threads is not given; more of OpenMP's variables hold too.";

constexpr const char* kExamples =
    " fovea attend --input layer.npz --causal --output context.npy\n"
    " fovea attend --input layer.safetensors --output o.npz --lse o.npz --verify\n"
    " fovea attend --query q.npy --key kv.npz:key --value kv.npz:value \\\n"
    "     --window 1023,0 --sinks 0.5,-1 --output context.safetensors:layer.0\n"
    " fovea attend --input batch.npz --key-lengths 812,1024 --output context.npz\n"
    " fovea attend --input layer.npz --dtype f64 --lse lse.npy --json\n"
    " fovea attend --input layer.npz --dtype bf16 --alibi --causal --verify\n"
    " python3 query.py | fovea attend --query - --input kv.npz --output - > c.npy";

}  // namespace

Page attend_page() {
  return {.synopsis = {"fovea attend --query TENSOR --key TENSOR --value TENSOR --output FILE",
                       "             [--lse FILE] [--layout LAYOUT] [--dtype TYPE] [--threads N]",
                       "             [--verify] [--json] [OPTION]...",
                       "fovea attend --input FILE [--query TENSOR] [--key TENSOR]",
                       "             [--value TENSOR] --output FILE [OPTION]..."},
          .description = kDescription,
          .sections = {{"TENSORS IN FILES", kTensors},
                       {"MASKS AND POSITIONS", kMasks},
                       {"THE REPORT", kReport},
                       {"JSON", kJson},
                       exit_status_section(),
                       {"ENVIRONMENT", kEnvironment},
                       {"EXAMPLES", kExamples},
                       {"SEE ALSO",
                        "fovea --help, fovea inspect --help, fovea-bench --help; docs/files.md, "
                        "docs/numerics.md"}}};
}

}  // namespace fovea::cli
