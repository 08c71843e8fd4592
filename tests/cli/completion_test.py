# SPDX-License-Identifier: Apache-2.0
"""`fovea completion`: the candidates that each shell offers for a line, as with the Tab key."""

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import time
import unittest

from support import SANITIZED, TIMEOUT_S, TRAINS, CliTest, environment

COMMANDS = {"learn", "explain", "inspect", "attend", "map", "tile", "heads", "view", "diff", "rollout", "record", "train", "translate", "info", "completion"}
# The candidates for the last word of each line.
CASES = {
    "fovea ": COMMANDS,
    "fovea at": {"attend"},
    "fovea heads --sor": {"--sort"},
    "fovea heads --sort e": {"entropy", "even"},
    "fovea heads --sort=e": {"entropy", "even"},
    "fovea heads --causal --sort pr": {"prev"},
    "fovea attend --dtype ": {"f32", "bf16", "f16", "f64"},
    "fovea attend --input la": {"layer.npz"},
    "fovea attend --window ": set(),
    "fovea explain les": {"lesson one.json"},
    "fovea completion ": {"bash", "zsh", "fish"},
}
if TRAINS:
    CASES["fovea train "] = {"scene", "translate"}
    CASES["fovea train scene --st"] = {"--steps"}

# Prints the candidates for the last word of $1, split as Readline splits it.
BASH_CAPTURE = r"""
source ./completion
mapfile -t COMP_WORDS < <(grep -oE '=|[^ =]+' <<<"$1")
[[ $1 == *' ' ]] && COMP_WORDS+=('')
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_fovea
printf '%s\n' "${COMPREPLY[@]}"
"""
# Ctrl-X writes the candidates that compadd would add to a file. Calls of compadd that only fill arrays
# are passed through.
ZSH_CAPTURE = r"""
PS1='ready> '
# Limits the wait for a second key after Ctrl-X, in hundredths of a second.
KEYTIMEOUT=1
autoload -Uz compinit
compinit -D -u
source ./completion
compadd() {
  if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then
    builtin compadd "$@"
    return
  fi
  local -a found
  builtin compadd -O found "$@"
  print -l -- $found >> candidates
}
capture() {
  : > candidates
  zle complete-word
  mv candidates captured
}
zle -N capture
bindkey '^X' capture
"""


class Zsh:
    """An interactive zsh on its own pseudo-terminal, in `directory`."""

    def __init__(self, directory):
        self.directory = directory
        (directory / ".zshrc").write_text(ZSH_CAPTURE, encoding="utf-8")
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(directory)
            os.execvpe("zsh", ["zsh", "-i"], environment(ZDOTDIR=str(directory), TERM="dumb"))
        self.wait_for(lambda shown: b"ready> " in shown)

    def wait_for(self, done):
        shown = b""
        deadline = time.monotonic() + TIMEOUT_S
        while not done(shown):
            if time.monotonic() > deadline:
                raise AssertionError(f"zsh shows {shown}")
            if select.select([self.terminal], [], [], 0.01)[0]:
                shown += os.read(self.terminal, 65536)

    def candidates(self, line):
        captured = self.directory / "captured"
        captured.unlink(missing_ok=True)
        os.write(self.terminal, line.encode() + b"\x18")
        self.wait_for(lambda shown: captured.exists())
        os.write(self.terminal, b"\x15")  # Ctrl-U deletes the line
        return captured.read_text(encoding="utf-8").splitlines()

    def close(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)


class CompletionTest(CliTest):
    def setUp(self):
        super().setUp()
        self.write("layer.npz", "")
        self.write("lesson one.json", "")

    def install(self, shell):
        """Writes the shell's script to the file `completion`; skips the test if the shell is missing."""
        if shutil.which(shell) is None:
            self.skipTest(f"no {shell}, which tools/setup.sh test installs")
        self.write("completion", self.succeed("completion", shell))
        if SANITIZED:
            self.skipTest("the shells run the program too often for sanitizers")

    def output_of(self, *command):
        result = subprocess.run(command, cwd=self.dir, env=environment(HOME=str(self.dir)), timeout=TIMEOUT_S,
                                stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", check=False)
        self.assertEqual((result.returncode, result.stderr), (0, ""), command)
        return result.stdout.splitlines()

    def check(self, candidates):
        """Compares the candidates with CASES, and the offered options with the help pages."""
        for line, expected in CASES.items():
            with self.subTest(line):
                self.assertEqual({word for word in candidates(line) if word}, expected)
        commands = ["", *sorted(COMMANDS)]
        if TRAINS:
            commands += ["train scene", "train translate"]
        for command in commands:
            with self.subTest(command):
                page = self.succeed(*command.split(), "--help")
                options = set(re.findall(r"^    (?:-\w, )?(--[a-z][a-z-]*)", page, re.MULTILINE))
                self.assertGreaterEqual(len(options), 1)
                self.assertEqual(set(candidates(f"fovea {command} --".replace("  ", " "))), options)

    def test_bash(self):
        self.install("bash")
        self.check(lambda line: self.output_of("bash", "--norc", "-c", BASH_CAPTURE, "bash", line))

    def test_fish(self):
        self.install("fish")

        def candidates(line):
            asked = self.output_of("fish", "--no-config", "-c", "source ./completion; complete -C $argv[1]", line)
            # fish returns "--sort=entropy" if the option's name and value are one word of the line.
            return [word.partition("\t")[0].rpartition("=")[2] for word in asked]

        self.check(candidates)

    def test_zsh(self):
        self.install("zsh")
        zsh = Zsh(self.dir)
        self.addCleanup(zsh.close)
        self.check(zsh.candidates)

    def test_invalid_arguments(self):
        self.assertEqual(self.fail_with(2, "completion"),
                         "fovea: expected a shell: bash, zsh or fish; see fovea completion --help")
        self.assertEqual(self.fail_with(2, "completion", "zhs"),
                         'fovea: SHELL: expected one of bash, zsh, fish; got "zhs" (did you mean "zsh"?); '
                         "see fovea completion --help")


if __name__ == "__main__":
    unittest.main()
