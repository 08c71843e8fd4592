// SPDX-License-Identifier: Apache-2.0
//
// Benchmark of `fovea explain`: the whole process from start to exit for every example scene, and
// the parts of the library for the first notebook's scene and for a sentence of 300 words. The goal
// for a process is 20 ms. Every scene is checked against its expected values before timing.

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include "fovea/scene.h"

extern char** environ;

namespace {

using namespace fovea::scene;

/// Runs the program, discards its output and returns its exit status, or -1 on failure.
int run_program(const std::vector<std::string>& arguments) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int failed = posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return -1;
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void process(benchmark::State& state, const std::string& scene, const std::string& format) {
  for (auto _ : state) {
    if (run_program({FOVEA_PROGRAM, "explain", scene, "--format", format}) != 0) {
      state.SkipWithError("the program failed");
      return;
    }
  }
}

Scene long_sentence() {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "word" + std::to_string(i) + ' ';
  return scene_from_sentence(text, {.dim = 64, .seed = 1, .causal = true, .heads = 2});
}

void register_parts(const std::string& name, const Scene& scene) {
  const auto add = [&](const char* part, auto function) {
    benchmark::RegisterBenchmark(("library/" + name + '/' + part).c_str(),
                                 [=](benchmark::State& state) {
                                   for (auto _ : state) benchmark::DoNotOptimize(function());
                                 })
        ->Unit(benchmark::kMillisecond);
  };
  const Trace trace = trace_scene(scene);
  add("parse", [scene] { return parse_scene(scene.json); });
  add("trace", [scene] { return trace_scene(scene); });
  add("text", [trace] { return to_text(trace); });
  add("json", [trace] { return to_json(trace); });
  add("markdown", [trace] { return to_markdown(trace); });
  add("latex", [trace] { return to_latex(trace); });
  add("slides", [trace] { return to_slides(trace); });
  add("html", [trace] { return to_html(trace); });
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::filesystem::path> scenes;
  for (const auto& entry : std::filesystem::directory_iterator(FOVEA_SCENES)) {
    if (entry.path().extension() == ".json") scenes.push_back(entry.path());
  }
  std::sort(scenes.begin(), scenes.end());
  for (const auto& path : scenes) {
    const Trace trace = trace_scene(load_scene(path.string()));
    if (!trace.passed()) {
      std::fprintf(stderr, "%s does not compute what it expects\n", path.c_str());
      return 1;
    }
    for (const char* format : {"text", "html"}) {
      benchmark::RegisterBenchmark(
          ("process/" + path.stem().string() + '/' + format).c_str(),
          [=](benchmark::State& state) { process(state, path.string(), format); })
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond);
    }
  }
  register_parts("001_your_journey",
                 load_scene(std::string(FOVEA_SCENES) + "/001_your_journey.json"));
  register_parts("300_words", long_sentence());
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
