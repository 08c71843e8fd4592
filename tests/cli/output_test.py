# SPDX-License-Identifier: Apache-2.0
"""Outputs of `fovea explain`: files, and the colours and width of text on a terminal."""

import fcntl
import os
import pty
import re
import stat
import struct
import subprocess
import termios
import unicodedata
import unittest

from support import EXAMPLES, FOVEA, TIMEOUT_S, CliTest, environment, run, scene

SENTENCE = "Your journey starts with one step"
ESCAPE = "\x1b"


def columns_of(line):
    """Returns the width of a line in terminal columns; joined emoji count as one glyph."""
    line = re.sub("\u200d.", "", line)
    return sum(0 if unicodedata.category(c) in ("Mn", "Me", "Cf")
               else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


class OutputTest(CliTest):
    def explain(self, name, *options, **run_options):
        path = self.dir / name
        out = self.succeed("explain", "-", "--output", str(path), *options, stdin=scene(),
                           **run_options)
        self.assertEqual(out, "")
        return path.read_text(encoding="utf-8")

    def test_extension_selects_the_format(self):
        for names, format_name in ((("a.html", "b.htm", "c.HTML"), "html"), (("a.json",), "json"),
                                   (("a.md", "b.markdown"), "markdown"), (("a.tex",), "latex"),
                                   (("a.txt", "story"), "text")):
            expected = self.succeed("explain", "-", "--format", format_name, stdin=scene())
            self.assertTrue(expected.endswith("\n"), format_name)
            for name in names:
                self.assertEqual(self.explain(name), expected, name)
        self.assertEqual(self.explain("page.html", "--format", "json"),
                         self.succeed("explain", "-", "--format", "json", stdin=scene()))

    def test_an_unknown_extension_is_refused(self):
        for name in ("a.pdf", "a.b.dat", "lesson.jsn"):
            message = self.fail_with(2, "explain", "-", "--output", str(self.dir / name), stdin=scene())
            self.assertIn(".txt, .json, .md, .markdown, .tex, .html, .htm", message)
            self.assertIn(name, message)
        self.assertEqual(self.files(), [])
        self.explain("a.dat", "--format", "text")

    def test_no_temporary_files_are_left(self):
        self.explain("page.html")
        self.explain("page.html")
        self.assertEqual(self.files(), ["page.html"])

    def test_relative_name(self):
        self.succeed("explain", "-", "--output", "here.txt", stdin=scene(), cwd=self.dir)
        self.assertEqual(self.files(), ["here.txt"])

    def test_permissions(self):
        for mask, mode in ((0o022, 0o644), (0o077, 0o600), (0o002, 0o664)):
            path = self.dir / f"new-{mask}.txt"
            self.explain(path.name, preexec_fn=lambda m=mask: os.umask(m))
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), mode)
        path = self.dir / "old.txt"
        path.write_text("old")
        os.chmod(path, 0o640)
        self.explain("old.txt")
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o640)

    def test_replacement_is_atomic(self):
        path = self.dir / "page.html"
        path.write_text("old")
        with open(path, encoding="utf-8") as reader:
            self.explain("page.html")
            # A reader with the old file open still sees all of it.
            self.assertEqual(reader.read(), "old")

    def test_symbolic_links_are_followed(self):
        (self.dir / "sub").mkdir()
        for target in ("sub/there.txt", "sub/not-yet.txt"):
            link = self.dir / f"link-{os.path.basename(target)}"
            if "not-yet" not in target:
                (self.dir / target).write_text("old")
            os.symlink(target, link)
            text = self.explain(link.name)
            self.assertTrue(link.is_symlink())
            self.assertFalse((self.dir / target).is_symlink())
            self.assertEqual((self.dir / target).read_text(encoding="utf-8"), text)
        self.assertEqual(sorted(os.listdir(self.dir / "sub")), ["not-yet.txt", "there.txt"])

    def test_fifo_output(self):
        path = self.dir / "pipe.html"
        os.mkfifo(path)
        # Opened for reading and writing, so that neither open blocks until the other side opens.
        pipe = os.open(path, os.O_RDWR)
        self.addCleanup(os.close, pipe)
        self.succeed("explain", "-", "--format", "text", "--output", str(path), stdin=scene())
        expected = self.succeed("explain", "-", stdin=scene())
        self.assertEqual(os.read(pipe, 1 << 16).decode(), expected)
        self.assertTrue(stat.S_ISFIFO(path.stat().st_mode))

    def test_device_output(self):
        expected = self.succeed("explain", "-", stdin=scene())
        self.assertEqual(self.succeed("explain", "-", "--output", "/dev/stdout", stdin=scene()),
                         expected)
        self.succeed("explain", "-", "--output", "/dev/null", stdin=scene())
        self.assertTrue(stat.S_ISCHR(os.stat("/dev/null").st_mode))

    def test_dev_stdout_redirected_to_a_file(self):
        path = self.dir / "log.txt"
        path.write_text("before\n")
        with open(path, "ab") as log:
            run("explain", "-", "--output", "/dev/stdout", stdin=scene(), stdout=log)
        expected = "before\n" + self.succeed("explain", "-", stdin=scene())
        self.assertEqual(path.read_text(encoding="utf-8"), expected)


class TerminalTest(CliTest):
    def on_terminal(self, *arguments, columns=100, env=None):
        """Returns the program's output on a terminal with the given number of columns."""
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        with subprocess.Popen([FOVEA, *arguments], stdin=subprocess.DEVNULL, stdout=follower,
                              stderr=subprocess.PIPE, env=env or environment()) as process:
            os.close(follower)
            written = b""
            while True:
                try:
                    block = os.read(leader, 65536)
                except OSError:  # Linux reports the closed other side as an error
                    break
                if not block:
                    break
                written += block
            os.close(leader)
            self.assertEqual((process.wait(timeout=TIMEOUT_S), process.stderr.read()), (0, b""))
        return written.decode().replace("\r\n", "\n")

    def explain(self, *options, **env):
        return self.on_terminal("explain", "--text", SENTENCE, *options, env=environment(**env))

    def assert_colours(self, text, kind):
        deep = bool(re.search(r"\x1b\[[0-9;]*[34]8;2;", text))
        indexed = bool(re.search(r"\x1b\[[0-9;]*[34]8;5;", text))
        self.assertEqual((deep, indexed),
                         {"true": (True, False), "256": (False, True),
                          "none": (False, False)}[kind])
        if kind == "none":
            self.assertNotIn(ESCAPE, text)

    def test_auto_on_a_terminal(self):
        self.assert_colours(self.explain(), "256")
        self.assert_colours(self.explain(COLORTERM="truecolor"), "true")
        self.assert_colours(self.explain(COLORTERM="24bit"), "true")
        self.assert_colours(self.explain(NO_COLOR=""), "256")
        self.assert_colours(self.explain(NO_COLOR="1"), "none")
        self.assert_colours(self.explain(TERM="dumb"), "none")
        self.assert_colours(self.explain("--color", "never", COLORTERM="truecolor"), "none")

    def test_auto_without_a_terminal(self):
        self.assert_colours(self.succeed("explain", "--text", SENTENCE,
                                         env=environment(COLORTERM="truecolor")), "none")
        path = self.dir / "story.txt"
        self.explain("--output", str(path), COLORTERM="truecolor")
        self.assert_colours(path.read_text(encoding="utf-8"), "none")

    def test_always(self):
        for env, kind in (({}, "256"), ({"COLORTERM": "truecolor"}, "true"),
                          ({"NO_COLOR": "1"}, "256"), ({"TERM": "dumb"}, "256")):
            self.assert_colours(self.succeed("explain", "--text", SENTENCE, "--color", "always",
                                             env=environment(**env)), kind)

    def test_colours_do_not_change_the_numbers(self):
        plain = self.succeed("explain", "--text", SENTENCE, "--query", "journey")
        coloured = self.succeed("explain", "--text", SENTENCE, "--query", "journey", "--color",
                                "always")
        def numbers(text):
            return re.findall(r"\d+\.\d+", re.sub(r"\x1b\[[0-9;]*m", "", text))
        self.assertEqual(numbers(coloured), numbers(plain))

    def test_width_of_the_terminal(self):
        def width(columns, *options, **env):
            text = self.on_terminal("explain", "--text", SENTENCE, "--color", "never", *options,
                                    columns=columns, env=environment(**env))
            return text

        def fixed(columns):
            return self.succeed("explain", "--text", SENTENCE, "--width", str(columns))

        self.assertEqual(width(90), fixed(90))
        self.assertEqual(width(20), fixed(60))
        self.assertEqual(width(500), fixed(160))
        self.assertEqual(width(90, COLUMNS="75"), fixed(75))
        self.assertEqual(width(90, "--width", "70", COLUMNS="75"), fixed(70))
        self.assertEqual(width(90, COLUMNS="wide"), fixed(90))
        self.assertEqual(self.succeed("explain", "--text", SENTENCE), fixed(100))
        self.assertNotEqual(fixed(60), fixed(100))

    def test_lines_fit_the_width(self):
        for columns in (60, 80, 100, 160):
            for path in EXAMPLES:
                text = self.succeed("explain", str(path), "--width", str(columns))
                for line in text.splitlines():
                    self.assertLessEqual(columns_of(line), columns, (path.name, line))


if __name__ == "__main__":
    unittest.main()
