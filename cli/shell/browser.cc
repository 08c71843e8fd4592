// SPDX-License-Identifier: Apache-2.0
//
// Starts a browser without waiting for it (browser.h).

#include "cli/shell/browser.h"

#include <cctype>
#include <cstdlib>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <unistd.h>

extern char** environ;

namespace fovea::cli {
namespace {

using Arguments = std::vector<std::string>;

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t end = text.find(separator);
    if (end != 0) parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return parts;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// Returns the command lines to try in order.
std::vector<Arguments> browsers(const std::string& url) {
  std::vector<Arguments> commands;
  for (const std::string& browser : split(variable("BROWSER"), ':')) {
    Arguments command = split(browser, ' ');
    bool placed = false;
    for (std::string& argument : command) {
      const std::size_t at = argument.find("%s");
      if (at == std::string::npos) continue;
      argument.replace(at, 2, url);
      placed = true;
    }
    if (command.empty()) continue;
    if (!placed) command.push_back(url);
    commands.push_back(std::move(command));
  }
#ifdef __APPLE__
  commands.push_back({"open", url});
#else
  // Without a screen, for example over SSH, xdg-open would fail without a message.
  if (!variable("DISPLAY").empty() || !variable("WAYLAND_DISPLAY").empty()) {
    commands.push_back({"xdg-open", url});
  }
  if (!variable("WSL_DISTRO_NAME").empty()) commands.push_back({"wslview", url});
#endif
  return commands;
}

/// Starts a program in a session of its own, detached from the terminal.
bool start(Arguments command) {
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDWR, 0);
  ::posix_spawn_file_actions_adddup2(&files, STDIN_FILENO, STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&files, STDIN_FILENO, STDERR_FILENO);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  pid_t process = 0;
  const int error =
      ::posix_spawnp(&process, arguments.front(), &files, &attributes, arguments.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&files);
  return error == 0;
}

}  // namespace

std::string file_url(const std::string& path) {
  std::string url = "file://";
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (byte < 0x80 && std::isalnum(byte) != 0) ||
                       std::string_view("/-._~").find(c) != std::string_view::npos;
    url += plain ? std::string(1, c) : fmt::format("%{:02X}", byte);
  }
  return url;
}

bool open_in_browser(const std::string& url) {
  for (const Arguments& command : browsers(url)) {
    if (start(command)) return true;
  }
  return false;
}

}  // namespace fovea::cli
