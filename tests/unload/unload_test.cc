// SPDX-License-Identifier: Apache-2.0
//
// Unloads a plugin that has used Fovea, after the thread that called it has ended:
//
//   unload_test PLUGIN
//
// Threads of the library must not run code that is no longer there. Exits with 0 if the plugin
// could be used and unloaded several times.

#include <chrono>
#include <cstdio>
#include <thread>

#include <dlfcn.h>

namespace {

bool use_and_unload(const char* path) {
  void* const plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (plugin == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return false;
  }
  const auto attend = reinterpret_cast<bool (*)()>(dlsym(plugin, "attend"));
  bool right = false;
  if (attend != nullptr) std::thread([&] { right = attend(); }).join();
  if (!right) std::fputs("expected a right result of the plugin\n", stderr);
  return dlclose(plugin) == 0 && right;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) return 2;
  for (int again = 0; again < 10; ++again) {
    if (!use_and_unload(arguments[1])) return 1;
    // Time for a thread to wake up in code that is gone.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}
