// SPDX-License-Identifier: Apache-2.0
//
// Completion scripts (scripts.h).

#include "cli/completion/scripts.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace fovea::cli {
namespace {

// Returns `text` in single quotes. `escaped_quote` is the shell's form of a quote within quotes.
std::string in_quotes(std::string_view text, std::string_view escaped_quote = "'\\''") {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'') {
      result += escaped_quote;
    } else {
      result += c;
    }
  }
  return result + "'";
}
std::string in_fish_quotes(std::string_view text) { return in_quotes(text, "\\'"); }

std::string joined(const std::vector<std::string>& words, std::string_view separator = " ") {
  return fmt::format("{}", fmt::join(words, separator));
}

// Returns all commands in quotes, without the program itself.
std::vector<std::string> quoted_commands(const std::vector<Completion>& table) {
  std::vector<std::string> commands;
  for (const Completion& entry : table) {
    if (!entry.command.empty()) commands.push_back(in_quotes(entry.command));
  }
  return commands;
}

const std::string& description_of(const std::vector<Completion>& table, const Completion& parent,
                                  const std::string& subcommand) {
  const std::string command =
      parent.command.empty() ? subcommand : parent.command + " " + subcommand;
  return std::find_if(table.begin(), table.end(),
                      [&](const Completion& entry) { return entry.command == command; })
      ->description;
}

// Returns the part that bash and zsh share: the end of the loop over the words typed, then a case
// over command and previous word. Its patterns are the options that take a value; `offer` formats
// their candidates.
std::string command_and_value_cases(const std::vector<Completion>& table,
                                    std::string (*offer)(const CompletionValue&)) {
  std::string text = fmt::format(
      "    case $next in\n"
      "      {}) command=$next ;;\n"
      "      *) break ;;\n"
      "    esac\n"
      "  done\n"
      "  case \"$command $previous\" in\n",
      joined(quoted_commands(table), " | "));
  std::vector<std::string> without_offer;
  for (const Completion& entry : table) {
    for (const CompletionOption& option : entry.options) {
      if (!option.value) continue;
      std::vector<std::string> patterns;
      for (const std::string& name : option.names) {
        patterns.push_back(in_quotes(entry.command + " " + name));
      }
      if (option.value->choices.empty() && !option.value->file) {
        without_offer.insert(without_offer.end(), patterns.begin(), patterns.end());
      } else {
        text += fmt::format("    {}) {} ;;\n", joined(patterns, " | "), offer(*option.value));
      }
    }
  }
  return text +
         fmt::format("    {}) return ;;\n    *) case $command in\n", joined(without_offer, " | "));
}

constexpr std::string_view kBashBegin =
    R"(# Completion of fovea in bash, printed by `fovea completion bash`.
_fovea() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  local word next command='' words='' options='' files=''
  COMPREPLY=()
  # Bash splits --option=value at the "=".
  if [[ $current == '=' ]]; then
    current=''
  elif [[ $previous == '=' ]]; then
    previous=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    [[ $word == -* ]] && continue
    next=${command:+$command }$word
)";
constexpr std::string_view kBashEnd = R"(    esac
    [[ $current == -* || -z $words$files ]] && words=$options files='' ;;
  esac
  mapfile -t COMPREPLY < <(
    compgen -W "$words" -- "$current"
    [[ -n $files ]] && compgen -f -- "$current"
  )
  [[ -n $files ]] && compopt -o filenames 2>/dev/null
  return 0
}
complete -F _fovea fovea
)";

constexpr std::string_view kZshBegin = R"(#compdef fovea
# Completion of fovea in zsh, printed by `fovea completion zsh`.
_fovea() {
  local word next command='' files='' previous=$words[CURRENT-1]
  local -a subcommands choices options
  if [[ $words[CURRENT] == --*=* ]]; then
    previous=${words[CURRENT]%%=*}
    compset -P '*='
  fi
  for word in "${(@)words[2,CURRENT-1]}"; do
    [[ $word == -* ]] && continue
    next=${command:+$command }$word
)";
constexpr std::string_view kZshEnd = R"(    esac
    if [[ $words[CURRENT] == -* ]] || (( ! $#subcommands && ! $#choices && ! $#files )); then
      _describe -o option options
      return
    fi ;;
  esac
  (( $#subcommands )) && _describe command subcommands
  (( $#choices )) && compadd -a choices
  [[ -n $files ]] && _files
}
if [[ $funcstack[1] == _fovea ]]; then
  _fovea "$@"
else
  compdef _fovea fovea
fi
)";

constexpr std::string_view kFishBegin =
    R"(# Completion of fovea in fish, printed by `fovea completion fish`.
# Succeeds if the words before the cursor select the command given.
function __fovea_command
    set -l command ''
    for word in (commandline -opc)[2..]
        string match -q -- '-*' $word; and continue
        set -l next (string trim -- "$command $word")
)";
constexpr std::string_view kFishEnd = R"(        set command $next
    end
    test "$command" = "$argv[1]"
end
complete -c fovea -f
)";

std::string offer_in_bash(const CompletionValue& value) {
  return fmt::format("words={} files={}", in_quotes(joined(value.choices)),
                     value.file ? "1" : "''");
}

std::string offer_in_zsh(const CompletionValue& value) {
  return fmt::format("choices=({}) files={}", joined(value.choices), value.file ? "1" : "''");
}

// Returns an array element for zsh's _describe, in which the word ends at the first colon.
std::string described(const std::string& word, const std::string& description) {
  return fmt::format("\n          {}", in_quotes(word + ":" + description));
}

// Returns the flags of fish's `complete` for the candidates of a value.
std::string offer_in_fish(const CompletionValue& value) {
  std::string flags = value.file ? " -F" : "";
  if (!value.choices.empty()) flags += " -a " + in_quotes(joined(value.choices));
  return flags;
}

}  // namespace

std::string bash_script(const std::vector<Completion>& table) {
  std::string script(kBashBegin);
  script += command_and_value_cases(table, offer_in_bash);
  for (const Completion& entry : table) {
    CompletionValue offered = entry.argument;
    offered.choices.insert(offered.choices.end(), entry.subcommands.begin(),
                           entry.subcommands.end());
    std::vector<std::string> options;
    for (const CompletionOption& option : entry.options) options.push_back(option.names.back());
    script += fmt::format("      {}) {} options={} ;;\n", in_quotes(entry.command),
                          offer_in_bash(offered), in_quotes(joined(options)));
  }
  script += kBashEnd;
  return script;
}

std::string zsh_script(const std::vector<Completion>& table) {
  std::string script(kZshBegin);
  script += command_and_value_cases(table, offer_in_zsh);
  for (const Completion& entry : table) {
    std::string subcommands;
    for (const std::string& name : entry.subcommands) {
      subcommands += described(name, description_of(table, entry, name));
    }
    std::string options;
    for (const CompletionOption& option : entry.options) {
      options += described(option.names.back(), option.description);
    }
    script +=
        fmt::format("      {}) {}\n        subcommands=({})\n        options=({}) ;;\n",
                    in_quotes(entry.command), offer_in_zsh(entry.argument), subcommands, options);
  }
  script += kZshEnd;
  return script;
}

std::string fish_script(const std::vector<Completion>& table) {
  std::string script(kFishBegin);
  script += fmt::format("        contains -- $next {}; or break\n", joined(quoted_commands(table)));
  script += kFishEnd;
  for (const Completion& entry : table) {
    const std::string here =
        fmt::format("complete -c fovea -n '__fovea_command \"{}\"'", entry.command);
    for (const std::string& name : entry.subcommands) {
      script += fmt::format("{} -a {} -d {}\n", here, name,
                            in_fish_quotes(description_of(table, entry, name)));
    }
    if (const std::string offer = offer_in_fish(entry.argument); !offer.empty()) {
      script += here + offer + "\n";
    }
    for (const CompletionOption& option : entry.options) {
      script += fmt::format(
          "{} -l {}{} -d {}\n", here, option.names.back().substr(2),
          option.value ? (option.value->file ? " -r" : " -x") + offer_in_fish(*option.value) : "",
          in_fish_quotes(option.description));
    }
  }
  return script;
}

}  // namespace fovea::cli
