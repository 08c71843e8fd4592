# SPDX-License-Identifier: Apache-2.0
"""Errors of the command line: a one-line message, the right exit code, and no leftover files."""

import json
import os
import random
import resource
import signal
import stat
import subprocess
import sys
import time
import unittest

from support import (FOVEA, SOURCE, TIMEOUT_S, CliTest, await_handler, default_signals, environment,
                     limits_memory, run, scene)


class DocumentedErrorsTest(CliTest):
    """Compares the messages in docs/scene.md, in the order of SCENES, with the program's; "..." marks a cut."""

    WORDS = {"tokens": ["the", "journey", "of", "the", "step"],
             "embeddings": [[1], [2], [3], [4], [5]]}
    PAIR = {"tokens": ["a", "b"], "embeddings": [[1, 2], [3, 4]]}
    SCENES = [
        {"tokens": ["a", "b"], "embedings": [[1], [2]]},
        {"tokens": "black cat", "embeddings": [[1], [2]]},
        {"tokens": ["a", "b"], "embeddings": [[1], [2], [3]]},
        {"tokens": ["a", "b"], "embeddings": [[1, 2], [3]]},
        {**PAIR, "projections": {"query": [[1], [2], [3]], "key": [[1], [2]], "value": [[1], [2]]}},
        {**WORDS, "focus": "jorney"},
        {**WORDS, "focus": "the"},
        {"tokens": ["a", "b"], "query": [[1], [2], [3]], "key": [[1], [2]], "value": [[1], [2]]},
        {**PAIR, "seed": 1, "order": ["W_Q"]},
        {**PAIR, "questions": [{"step": "weights", "index": [1], "ask": "?"}]},
        {**PAIR, "expect": [{"step": "weight", "values": 1}]},
    ]

    def test_documented_messages_are_current(self):
        text = (SOURCE / "docs" / "scene.md").read_text(encoding="utf-8")
        shown = [line for line in text.splitlines() if line.startswith("fovea: mine.json: ")]
        self.assertEqual(len(shown), len(self.SCENES))
        for line, content in zip(shown, self.SCENES):
            self.write("mine.json", json.dumps(content))
            printed = self.fail_with(2, "explain", "mine.json", cwd=self.dir)
            if line.endswith("..."):
                printed = printed[:len(line) - 3] + "..."
            self.assertEqual(printed, line)


class BadInputTest(CliTest):
    def test_missing_file(self):
        path = str(self.dir / "missing.json")
        message = self.fail_with(2, "explain", path)
        self.assertIn(path, message)
        self.assertIn("No such file or directory", message)

    def test_sentence_instead_of_a_file(self):
        for sentence in ("The cat sat", "The cat sat.", "journey"):
            self.assertIn(f'explain --text "{sentence}"', self.fail_with(2, "explain", sentence, cwd=self.dir))
        for name in ("missing.json", "folder/missing"):
            self.assertNotIn("--text", self.fail_with(2, "explain", name, cwd=self.dir))

    def test_words_and_scenes(self):
        message = self.fail_with(2, "explain", "The", "cat", "sat", cwd=self.dir)
        self.assertIn('got 3; a sentence: --text "The cat sat"', message)
        paths = [self.write(f"{i}.json", scene()) for i in range(3)]
        self.assertNotIn("--text", self.fail_with(2, "explain", *paths, "--output", "page.html"))
        for options in ([], ["--format", "json"], ["--output", "both.md"]):
            message = self.fail_with(2, "explain", *paths[:2], *options)
            self.assertIn("expected one, or two for a page (--output FILE.html), got 2", message)
        page = ["--format", "html"]
        self.assertIn("--check", self.fail_with(2, "explain", *paths[:2], *page, "--check"))
        self.assertIn('"-"', self.fail_with(2, "explain", "-", "-", *page, stdin=scene()))
        self.assertIn("SCENE", self.fail_with(2, "explain", paths[0], "", *page))
        self.assertIn("--output", self.fail_with(2, "explain", *paths[:2], *page, "--output", paths[1]))
        self.assertIn("none.json", self.fail_with(2, "explain", paths[0], "none.json", *page))

    def test_directory(self):
        message = self.fail_with(2, "explain", str(self.dir))
        self.assertIn(str(self.dir), message)
        self.assertIn("directory", message)

    def test_unreadable_file(self):
        path = self.write("secret.json", scene())
        os.chmod(path, 0)
        options = {}
        if os.geteuid() == 0:
            # Root can read every file, so the program runs as another user.
            if sys.platform != "linux":
                self.skipTest("needs an ordinary user")
            options["user"] = 65534
            os.chmod(self.dir, 0o755)
            try:
                run("--version", **options)
            except PermissionError:
                self.skipTest("an ordinary user cannot reach the program")
        message = self.fail_with(2, "explain", path, **options)
        self.assertIn(path, message)
        self.assertIn("Permission denied", message)

    def test_empty_name(self):
        self.assertIn("SCENE", self.fail_with(2, "explain", ""))
        for name in ("", "-"):
            self.assertIn(f'--output: expected a file name, got "{name}"',
                          self.fail_with(2, "explain", "-", "--output", name))

    def test_not_json(self):
        path = self.write("bad.json", "{ this is no scene")
        self.assertIn(path, self.fail_with(2, "explain", path))

    def test_not_utf8(self):
        path = self.write("latin1.json", scene().encode().replace(b"journey", b"journ\xe9y"))
        self.assertIn(path, self.fail_with(2, "explain", path))

    def test_binary(self):
        self.fail_with(2, "explain", self.write("zeros.json", b"\0" * 1000))
        self.fail_with(2, "explain", self.write("empty.json", b""))

    def test_huge_file(self):
        path = self.write("huge.json", b'{"title": "' + b"a" * 50_000_000 + b'"}')
        begin = time.monotonic()
        self.assertIn(path, self.fail_with(2, "explain", path))
        with open(path, "rb") as file:
            result = subprocess.run([FOVEA, "explain", "-"], stdin=file, capture_output=True,
                                    timeout=TIMEOUT_S, check=False)
        self.assertEqual(result.returncode, 2)
        self.assertIn("standard input", self.one_line(result.stderr))
        self.assertLess(time.monotonic() - begin, 5)

    @limits_memory
    def test_memory_runs_out(self):
        path = self.write("large.json", scene(more=[[1.5] * 10] * 200_000))
        ends = set()
        for megabytes in range(80, 200, 12):
            size = megabytes << 20
            result = subprocess.run([FOVEA, "explain", path], capture_output=True, timeout=TIMEOUT_S, check=False,
                                    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (size, size)))
            ends.add((result.returncode, "out of memory" in self.one_line(result.stderr)))
        self.assertLessEqual(ends, {(1, True), (2, False)})
        self.assertIn((1, True), ends)

    def test_endless_input(self):
        with open("/dev/zero", "rb") as zeros:
            result = subprocess.run([FOVEA, "explain", "-"], stdin=zeros, capture_output=True,
                                    timeout=TIMEOUT_S, check=False)
        self.assertEqual(result.returncode, 2)
        self.one_line(result.stderr)

    def test_deep_nesting(self):
        for text in ("[" * 100_000 + "]" * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000,
                     '{"tokens": ' + "[" * 100_000):
            self.fail_with(2, "explain", "-", stdin=text)

    def test_standard_input_is_named(self):
        self.assertIn("standard input", self.fail_with(2, "explain", "-", stdin="{}"))

    def test_unknown_query_lists_the_words(self):
        message = self.fail_with(2, "explain", "-", "--query", "jorney", stdin=scene())
        for word in ("Your", "journey", "starts"):
            self.assertIn(word, message)
        self.assertIn('did you mean "journey"', message)

    def test_repeated_word(self):
        text = scene(tokens=["a", "b", "a"], focus=None)
        self.assertIn("@", self.fail_with(2, "explain", "-", "--query", "a", stdin=text))
        self.succeed("explain", "-", "--query", "@2", stdin=text)
        self.fail_with(2, "explain", "-", "--query", "@3", stdin=text)


class UsageTest(CliTest):
    def usage(self, *arguments, page="fovea explain"):
        message = self.fail_with(2, *arguments)
        self.assertTrue(message.endswith(f"; see {page} --help"), message)
        return message

    def test_unknown_command(self):
        self.assertIn('"explian" (did you mean "explain"?)',
                      self.usage("explian", "x.json", page="fovea"))
        self.assertIn('"zzz"', self.usage("zzz", page="fovea"))

    def test_unknown_option(self):
        self.assertIn('"--qurey" (did you mean "--query"?)',
                      self.usage("explain", "x.json", "--qurey", "journey"))
        self.assertIn('"--formt" (did you mean "--format"?)',
                      self.usage("explain", "x.json", "--formt=json"))
        self.assertIn('"--versoin" (did you mean "--version"?)',
                      self.usage("--versoin", page="fovea"))
        self.assertIn('"-x"', self.usage("explain", "-x", "x.json"))
        self.assertIn('"--jso"', self.usage("info", "--jso", page="fovea info"))

    def test_values(self):
        self.assertIn('got "jsno" (did you mean "json"?)',
                      self.usage("explain", "x.json", "--format", "jsno"))
        self.assertIn('got "sometimes"', self.usage("explain", "x.json", "--color", "sometimes"))
        for value in ("0", "-1", "1.5", "four", "4097", "99999999999999999999", "", "4 "):
            self.assertIn("--dim: expected a whole number from 1 to 4096",
                          self.usage("explain", "--text", "a b", "--dim", value))
        for value in ("-1", "4294967296", "0x10"):
            self.assertIn("--seed: expected", self.usage("explain", "--text", "a", "--seed", value))
        self.assertIn("--width: expected",
                      self.usage("explain", "--text", "a", "--width", "10"))
        for width in ("39", "241"):
            self.assertIn(f'expected a whole number from 40 to 240, got "{width}"',
                          self.usage("explain", "--text", "a", "--width", width))
        for width in ("40", "240"):
            self.succeed("explain", "--text", "a", "--width", width)
        self.assertIn("--dim: expected a value", self.usage("explain", "--text", "a", "--dim"))

    def test_incompatible_options(self):
        self.assertIn("expected a SCENE", self.usage("explain"))
        self.assertIn("got both", self.usage("explain", "x.json", "--text", "a b"))
        self.assertIn('SCENE: expected one, or two for a page (--output FILE.html), got 2: x.json y.json; see', self.usage("explain", "x.json", "y.json"))
        for option in (["--dim", "4"], ["--seed", "1"], ["--causal"], ["--heads", "2"],
                       ["--projections", "random"]):
            message = self.usage("explain", "x.json", *option)
            self.assertIn(option[0], message)
            self.assertIn("--text", message)
        self.assertIn("--width",
                      self.usage("explain", "x.json", "--width", "80", "--format", "json"))

    def test_invalid_sentences(self):
        for arguments in (["--text", ""], ["--text", " \n "],
                          ["--text", "a b", "--dim", "4", "--heads", "3"]):
            self.fail_with(2, "explain", *arguments)

    def test_unprintable_arguments(self):
        # fail_with checks that the message is UTF-8 without control characters.
        escape = "\x1b]0;owned\x07"
        self.assertIn(r"\x1b]0;owned\x07", self.usage("explain", "a.json", f"--{escape}"))
        self.assertIn(r"\x1b]0;owned\x07", self.usage(escape, page="fovea"))
        self.assertIn(r"\x1b]0;owned\x07", self.fail_with(2, "explain", escape))
        self.assertIn(r"\x1b]0;owned\x07",
                      self.fail_with(2, "explain", "-", "--query", escape, stdin=scene()))
        self.assertIn(r"\xff", self.fail_with(2, "explain", b"no\xff.json"))
        self.assertIn(r"\xff", self.fail_with(2, "explain", "-", "--query", b"\xff", stdin=scene()))
        self.fail_with(2, "explain", "--text", b"one \xff two")
        self.fail_with(2, "explain", "line\nbreak.json")
        self.assertIn(r"\x9b", self.fail_with(2, "explain", "c1\u009b31m.json"))
        self.assertIn(r"\u202e", self.fail_with(2, "explain", "turned\u202e.json"))


class OutputErrorTest(CliTest):
    def test_full_disk(self):
        with open("/dev/full", "wb") as full:
            message = self.fail_with(1, "explain", "--text", "a b", stdout=full)
            self.assertIn("standard output: cannot be written: No space left on device", message)
            for arguments in (["--help"], ["--version"], ["info"]):
                self.fail_with(1, *arguments, stdout=full)
        message = self.fail_with(1, "explain", "--text", "a b", "--output", "/dev/full")
        self.assertIn("/dev/full: cannot be written: No space left on device", message)

    def test_closed_standard_output(self):
        result = subprocess.run(["/bin/sh", "-c", '"$0" explain --text "a b" >&-', FOVEA],
                                capture_output=True, timeout=TIMEOUT_S, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn("standard output", self.one_line(result.stderr))

    def test_closed_pipe(self):
        result = run("explain", "--text", "a b", stdout=self.pipe_without_reader())
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        result = subprocess.run(
            ["bash", "-c", '"$0" explain --text "$1" --format html | head -c 1; '
             'exit "${PIPESTATUS[0]}"', FOVEA, "a b c d e f g h " * 20],
            capture_output=True, timeout=TIMEOUT_S, check=False)
        self.assertEqual((result.returncode, len(result.stdout), result.stderr), (0, 1, b""))

    def test_no_such_directory(self):
        path = str(self.dir / "missing" / "page.html")
        message = self.fail_with(1, "explain", "--text", "a b", "--output", path)
        self.assertIn(f"{path}: cannot be written: No such file or directory", message)

    def test_output_is_a_directory(self):
        message = self.fail_with(1, "explain", "--text", "a b", "--output", str(self.dir))
        self.assertIn("Is a directory", message)
        message = self.fail_with(1, "explain", "--text", "a", "--output", f"{self.dir}/new/")
        self.assertEqual(self.files(), [])

    def test_name_too_long(self):
        path = str(self.dir / ("x" * 300))
        self.fail_with(1, "explain", "--text", "a b", "--output", path)
        self.assertEqual(self.files(), [])

    def test_symbolic_link_loop(self):
        os.symlink("b", self.dir / "a")
        os.symlink("a", self.dir / "b")
        message = self.fail_with(1, "explain", "--text", "a b", "--output", str(self.dir / "a"))
        self.assertIn("symbolic links", message)

    def test_bad_input_keeps_the_old_file(self):
        path = self.write("page.html", "old")
        self.fail_with(2, "explain", "-", "--output", path, stdin="{}")
        self.assertEqual((self.dir / "page.html").read_text(), "old")
        self.assertEqual(self.files(), ["page.html"])

    def test_failed_write_leaves_nothing_behind(self):
        def small_files_only():
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

        old = self.write("old.html", "old")
        for path in (old, str(self.dir / "new.html")):
            message = self.fail_with(1, "explain", "--text", "a b", "--output", path,
                                     preexec_fn=small_files_only)
            self.assertIn(f"{path}: cannot be written: File too large", message)
        self.assertEqual(self.files(), ["old.html"])
        self.assertEqual((self.dir / "old.html").read_text(), "old")

    def test_write_protected(self):
        options = self.as_ordinary_user()
        path = self.write("page.html", "old")
        if options:
            os.chown(path, 65534, 65534)
        os.chmod(path, 0o444)
        message = self.fail_with(1, "explain", "--text", "a b", "--output", path, **options)
        self.assertIn(f"{path}: cannot be written: Permission denied", message)
        os.chmod(self.dir, stat.S_IRUSR | stat.S_IXUSR)
        message = self.fail_with(1, "explain", "--text", "a b", "--output",
                                 str(self.dir / "new.html"), **options)
        self.assertIn("Permission denied", message)
        os.chmod(self.dir, 0o755)
        self.assertEqual(self.files(), ["page.html"])
        self.assertEqual((self.dir / "page.html").read_text(), "old")


class SignalTest(CliTest):
    def start(self, *arguments):
        return subprocess.Popen([FOVEA, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, env=environment(),
                                preexec_fn=default_signals)

    def test_interrupted_while_reading(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)):
            process = self.start("explain", "-", "--output", str(self.dir / "page.html"))
            process.stdin.write(b'{"title": ')
            process.stdin.flush()
            await_handler(process, number)
            time.sleep(0.2)
            process.send_signal(number)
            out, err = process.communicate(timeout=TIMEOUT_S)
            self.assertEqual((process.returncode, out, err), (code, b"", b""), number)
            self.assertEqual(self.files(), [])

    def test_interrupted_at_any_moment(self):
        # At any moment, there is either no file or the complete one, and no temporary file is left.
        chance = random.Random(1)
        path = self.dir / "page.html"
        whole = self.succeed("explain", "--text", "a b c d e f", "--format", "html")
        codes = set()
        for _ in range(60):
            process = self.start("explain", "--text", "a b c d e f", "--output", str(path))
            time.sleep(chance.uniform(0, 0.015))
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=TIMEOUT_S)
            codes.add(process.returncode)
            self.assertEqual(err, b"")
            if path.exists():
                self.assertEqual(path.read_text(encoding="utf-8"), whole)
                path.unlink()
            self.assertEqual(self.files(), [])
        # A signal that arrives before main starts has its default action.
        self.assertLessEqual(codes, {0, 130, -signal.SIGINT})

    def test_ignored_signals_stay_ignored(self):
        process = subprocess.Popen(
            [FOVEA, "explain", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
        process.stdin.write(b" ")
        process.stdin.flush()
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(scene().encode(), timeout=TIMEOUT_S)
        self.assertEqual((process.returncode, err), (0, b""))
        self.assertIn(b"journey", out)


if __name__ == "__main__":
    unittest.main()
