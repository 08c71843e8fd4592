// SPDX-License-Identifier: Apache-2.0
//
// The manual page of `fovea-bench` (bench_page.h). What the options are for stands where they are
// added, in bench_command.cc.

#include "bench/attention/page.h"

namespace fovea::cli {
namespace {

constexpr const char* kDescription =
    "Measures how fast this machine computes, and how near attention comes to that. Every result "
    "is compared with the reference first; one that is wrong ends the run, without a figure.\n"
    "\n"
    "ceilings\tWhat the machine can do at best: float32 multiply-adds that wait for nothing, those "
    "of bfloat16 where the target has them, and reading memory in order.\n"
    "forward\tThe C++ call attention_forward, on the standard table of problems or on one that the "
    "options describe.\n"
    "backward\tThe C++ call attention_backward, for the gradients of query, key and value, "
    "likewise.\n"
    "decode\tThe C++ call attention_decode, one query for each head against a long cache, "
    "likewise.\n"
    "lenses\tattention_forward with lenses, on the standard table or on a problem of your own: "
    "what they cost, as a multiple of the same call without them; with relevance, of "
    "attention_backward. After the standard table, "
    "looks.\n"
    "looks\tWeights found again: a part of a matrix of a million queries and keys, a pooled one, "
    "and "
    "a row.\n"
    "tiny\tThe first call on 4 queries and 4 keys of 3 numbers: what a call costs in itself.\n"
    "memory\tWhat the first call takes beyond its inputs and outputs, on 262,144 tokens of which "
    "each sees 1,024.";

constexpr const char* kTable =
    "Inputs are normal random numbers, the same in every run. In each round every row has its "
    "turn: "
    "a ceiling, a call to warm up, calls for a tenth of a second, the ceiling again.\n"
    "\n"
    "threads\tThreads of the call and of its ceiling.\n"
    "median, best\tTime of a call, over all rounds.\n"
    "GFLOP/s\tUseful work at the median time: 2 (D + value D) flop for each pair of a query and a "
    "key that it sees, backward 2 (3 D + 2 value D). What a mask leaves out does not count.\n"
    "GB/s\tIn decoding: the bytes of all keys and values, read once, at the median time.\n"
    "of ceiling\tThe share of the ceiling that was measured right before and after (the higher of "
    "both), with the same threads and target: the median of all rounds. In decoding that is the "
    "memory's, which a cache may exceed; for tensors in bfloat16, where the target multiplies "
    "those, theirs. Rows with an x are compared with something else, measured in turns: two "
    "threads "
    "with one, types of 16 bits with float32, lenses with none.\n"
    "at least\tWhat Fovea promises on AMD's Zen 4 and Zen 5; <= is a time. \"missed\" where it is "
    "not kept, which on a busy machine may be the neighbours' doing. On other CPUs, with another "
    "--threads than 1, and for problems of your own, nothing is promised.\n"
    "error\tThe largest difference between the context and the reference in float64, in rows of "
    "the first, middle and last query and head; backward, of all gradients of a loss on these "
    "rows.\n"
    "\n"
    "With AVX3 and AVX2 other floors hold. To see them on a CPU that has more, set FOVEA_TARGET.\n"
    "\n"
    "The functor is softcap:30 once more, as a user of the library would write it: a class of "
    "vectors, compiled against what is installed.";

constexpr const char* kJson =
    "One object, with the parts that were measured. Times are in seconds, shares and speedups are "
    "numbers (0.9 for 90 %), and what does not apply is null.\n"
    "\n"
    "version, compiler, build_type\tof this build\n"
    "cpu, cpus\tthe CPU's name, and how many may be used\n"
    "target\tthe SIMD target\n"
    "ceilings\tarray of {threads, fma_gflops, bf16_gflops, read_gb_per_s}; 0 where the target "
    "multiplies no bfloat16\n"
    "forward\tarray of rows: {problem, threads, flop, median_s, best_s, at_most_s, gflops, share, "
    "share_at_least, against, speedup, speedup_at_least, error, allowed_error, rounds}\n"
    "forward[].problem\t{batch, q_heads, kv_heads, q_len, kv_len, head_dim, value_dim, mask, "
    "softcap, alibi, bias, relative, functor, dtype, block_size}\n"
    "forward[].against\tnull, \"one thread\", \"float32\" or \"no lenses\"\n"
    "forward[].rounds\tarray of {seconds, ceilings_gflops}: the time of each call, and the "
    "ceilings before and after; against_seconds: of what it is compared with\n"
    "backward\tthe same\n"
    "decode\tthe same, with bytes, gb_per_s and ceilings_gb_per_s\n"
    "lenses\tthe same, against \"no lenses\", with {cost, cost_at_most}: 1 / speedup; their "
    "problems have lenses: {map_rows, map_columns, statistics, top, received, relevance, rising}\n"
    "looks\tarray of {length, head_dim, queries, keys, cells, "
    "median_s, best_s, at_most_s, error, seconds}: queries x keys weights of length x length, "
    "pooled to cells x cells, or all keys of a query\n"
    "tiny\t{median_s, best_s, at_most_s, calls_per_sample, seconds}: per call, of each sample\n"
    "memory\t{problem, bytes, at_most}: beyond inputs and outputs";

constexpr const char* kEnvironment =
    "FOVEA_TARGET\tThe SIMD target to compute with; fovea info lists them.\n"
    "OMP_PROC_BIND, OMP_PLACES\tKeep threads on their CPUs; more of OpenMP's variables hold too.";

constexpr const char* kExamples =
    " fovea-bench\n"
    " fovea-bench ceilings --threads 4\n"
    " FOVEA_TARGET=AVX2 fovea-bench forward\n"
    " fovea-bench --q-len 16384 --q-heads 2 --mask causal\n"
    " fovea-bench --q-len 2048 --q-heads 32 --kv-heads 8 --head-dim 128\n"
    " fovea-bench --mask window:255,0 --score alibi --quick\n"
    " fovea-bench --q-len 2048 --q-heads 8 --dtype bf16\n"
    " fovea-bench backward --q-len 2048 --q-heads 2 --mask causal\n"
    " fovea-bench decode --kv-len 32768 --q-heads 32 --kv-heads 8 --head-dim 128\n"
    " fovea-bench lenses --q-len 8192 --lens map:16,16 --lens top:4\n"
    " fovea-bench forward decode --json > bench.json";

}  // namespace

Page bench_page() {
  return {
      .synopsis = {"fovea-bench [ceilings] [forward] [backward] [decode] [lenses] [looks]",
                   "            [tiny] [memory] [--threads N] [--repeat N] [--quick] [--json]",
                   "fovea-bench [forward] [backward] [decode] [lenses] [--q-len N] [--kv-len N]",
                   "            [--q-heads N] [--kv-heads N] [--batch N] [--head-dim N]",
                   "            [--value-dim N] [--mask RULE]... [--score RULE]...",
                   "            [--dtype TYPE] [--block-size N] [--lens LENS]... [OPTION]..."},
      .description = kDescription,
      .sections = {{"THE TABLE", kTable},
                   {"JSON", kJson},
                   exit_status_section(),
                   {"ENVIRONMENT", kEnvironment},
                   {"EXAMPLES", kExamples},
                   {"SEE ALSO", "fovea --help, fovea info --help"}}};
}

}  // namespace fovea::cli
