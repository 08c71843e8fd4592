# SPDX-License-Identifier: Apache-2.0
"""`fovea learn`: the lessons, their pages, and the browser."""

import json
import re
import time
import unittest
import urllib.parse
import xml.etree.ElementTree as ElementTree

from support import SOURCE, TIMEOUT_S, TRAINS, CliTest, environment

LESSONS = sorted((SOURCE / "lessons").glob("*.json"))
NAMES = [path.stem.split("_", 1)[1].replace("_", "-") for path in LESSONS]
PAGES = [path.stem.replace("_", "-") + ".html" for path in LESSONS]
XHTML = "{http://www.w3.org/1999/xhtml}"


class LessonTest(CliTest):
    """The lesson files."""

    def test_numbers_are_consecutive(self):
        self.assertGreaterEqual(len(LESSONS), 7)
        self.assertEqual([path.stem.split("_")[0] for path in LESSONS],
                         [str(i + 1) for i in range(len(LESSONS))])

    def test_expected_numbers_hold(self):
        for path in LESSONS:
            with self.subTest(path.name):
                self.succeed("explain", str(path), "--check")

    def test_every_lesson_has_notes_and_questions(self):
        for path in LESSONS:
            with self.subTest(path.name):
                lesson = json.loads(path.read_text(encoding="utf-8"))
                self.assertGreaterEqual(len(lesson["notes"]), 4)
                self.assertTrue(2 <= len(lesson["questions"]) <= 4)
                first = lesson["notes"]["scene"].split("\n")[0]
                self.assertLessEqual(len(first), 100)
                self.assertTrue(first.endswith("."))
                self.assertIn("\n\n", lesson["notes"]["scene"])

    @unittest.skipUnless(TRAINS, "built without fovea::nn")
    def test_the_trained_head_is_what_training_gives(self):
        start = SOURCE / "examples" / "scenes" / "learn_cat.json"
        trained = self.dir / "trained.json"
        self.succeed("train", "scene", str(start), "--output", str(trained))
        expected = json.loads(trained.read_text(encoding="utf-8"))["projections"]
        lesson = json.loads(next(path for path in LESSONS if "training" in path.name).read_text(encoding="utf-8"))
        self.assertEqual(lesson["embeddings"], json.loads(start.read_text(encoding="utf-8"))["embeddings"])
        for name in ("query", "key", "value"):
            for row, whole, before in zip(expected[name], lesson["projections"][name], ([1, 0], [0, 1])):
                self.assertEqual(whole[:2], before)
                self.assertEqual(whole[2:], [round(number, 2) for number in row])


class LearnTest(CliTest):
    def setUp(self):
        super().setUp()
        self.home = self.dir / "home"
        self.home.mkdir()
        self.env = environment(HOME=str(self.home), PATH="/nowhere")
        for name in ("XDG_DATA_HOME", "BROWSER", "DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME"):
            self.env.pop(name, None)

    def learn(self, *arguments, **changes):
        return self.succeed("learn", *arguments, env={**self.env, **changes})

    def browser(self, name="browser", delay=0):
        """Returns the path of a program that writes its arguments to the file `name`.seen."""
        return self.program_file(name, f"sleep {delay}; printf '%s\\n' \"$@\" > '{self.dir}/{name}.tmp'\n"
                                       f"mv '{self.dir}/{name}.tmp' '{self.dir}/{name}.seen'\n")

    def program_file(self, name, script):
        path = self.dir / name
        path.write_text("#!/bin/sh\nPATH=/usr/bin:/bin\n" + script, encoding="utf-8")
        path.chmod(0o755)
        return str(path)

    def seen(self, name="browser"):
        path = self.dir / f"{name}.seen"
        deadline = time.monotonic() + TIMEOUT_S
        while not path.exists():
            self.assertLess(time.monotonic(), deadline, "the browser was not started")
            time.sleep(0.02)
        return path.read_text(encoding="utf-8").splitlines()

    def url(self, page, folder=None):
        folder = folder or self.home / ".local" / "share" / "fovea" / "learn"
        return "file://" + urllib.parse.quote(str(folder / page))

    # ---- List

    def test_list(self):
        text = self.learn("--list")
        for number, (path, name) in enumerate(zip(LESSONS, NAMES), 1):
            lesson = json.loads(path.read_text(encoding="utf-8"))
            self.assertRegex(text, rf"(?m)^{number}  {name} +{re.escape(lesson['title'])}$")
            summary = lesson["notes"]["scene"].split("\n")[0]
            self.assertIn(summary, " ".join(text.split()))
        self.assertNotIn("file:", text)
        self.assertEqual(list(self.home.iterdir()), [])

    def test_list_excludes_writing(self):
        for argument in ("softmax", "--no-open", "--output=x"):
            self.assertIn("--list goes without", self.fail_with(2, "learn", "--list", argument))

    def test_list_fits_the_width(self):
        text = self.learn("--list", COLUMNS="60")
        self.assertLessEqual(max(map(len, text.splitlines())), 60)

    # ---- Pages

    def test_writes_all_pages_and_lists_them(self):
        text = self.learn()
        folder = self.home / ".local" / "share" / "fovea" / "learn"
        self.assertEqual(sorted(path.name for path in folder.iterdir()), sorted([*PAGES, "index.html"]))
        for page in PAGES:
            self.assertIn(f"   {self.url(page)}\n", text)
        self.assertTrue(text.endswith(f"\nOpen in a browser: {self.url('index.html')}\n"), text)

    def test_xdg_data_home(self):
        self.learn(XDG_DATA_HOME=str(self.dir / "data"))
        self.assertTrue((self.dir / "data" / "fovea" / "learn" / "index.html").exists())
        # The specification says that relative paths are ignored.
        self.learn(XDG_DATA_HOME="data")
        self.assertTrue((self.home / ".local" / "share" / "fovea" / "learn" / "index.html").exists())

    def test_output_folder(self):
        folder = self.dir / "les sons" / "ü"
        text = self.learn("--output", str(folder))
        self.assertIn(self.url("index.html", folder), text)
        self.assertEqual(len(list(folder.iterdir())), len(PAGES) + 1)
        self.assertEqual(list(self.home.iterdir()), [])

    def test_pages_link_to_their_neighbours(self):
        self.learn("--output", str(self.dir / "out"))
        names = {*PAGES, "index.html"}
        for i, page in enumerate(["index.html", *PAGES]):
            root = ElementTree.parse(self.dir / "out" / page).getroot()
            links = [a.get("href") for a in root.iter(f"{XHTML}a")]
            links = [link for link in links if not link.startswith("#")]
            self.assertLessEqual(set(links), names, page)
            if page == "index.html":
                self.assertEqual(links, PAGES)
                continue
            self.assertIn("index.html", links)
            self.assertEqual(PAGES[i - 2] in links if i > 1 else False, i > 1)
            self.assertEqual(PAGES[i] in links if i < len(PAGES) else False, i < len(PAGES))

    def test_pages_need_no_network(self):
        self.learn("--output", str(self.dir / "out"))
        for path in (self.dir / "out").iterdir():
            page = path.read_text(encoding="utf-8")
            for address in set(re.findall(r"https?://[^\"'\s<)]+", page)):
                self.assertTrue(address.startswith("http://www.w3.org/"), (path.name, address))

    def test_pages_are_the_same_each_time(self):
        contents = []
        for _ in range(2):
            self.learn("--output", str(self.dir / "out"))
            contents.append({path.name: path.read_bytes() for path in (self.dir / "out").iterdir()})
        self.assertEqual(contents[0], contents[1])

    def test_other_files_stay(self):
        folder = self.dir / "out"
        folder.mkdir()
        (folder / "mine.html").write_text("mine", encoding="utf-8")
        self.learn("--output", str(folder))
        self.assertEqual((folder / "mine.html").read_text(encoding="utf-8"), "mine")

    def test_a_file_with_the_name_of_a_page_is_not_replaced(self):
        folder = self.dir / "out"
        folder.mkdir()
        (folder / PAGES[-1]).write_text("mine", encoding="utf-8")
        message = self.fail_with(1, "learn", "--output", str(folder), env=self.env)
        self.assertIn(f"{PAGES[-1]}: exists and is not a page of fovea learn", message)
        self.assertEqual([path.name for path in folder.iterdir()], [PAGES[-1]])

    def test_folder_that_cannot_be_created(self):
        self.write("file", "")
        message = self.fail_with(1, "learn", "--output", str(self.dir / "file" / "x"), env=self.env)
        self.assertIn("file/x: cannot be created as a folder: Not a directory", message)
        message = self.fail_with(1, "learn", "--output", str(self.dir / "file"), env=self.env)
        self.assertIn("file: cannot be created as a folder: ", message)
        message = self.fail_with(1, "learn", "--output", str(self.dir / ("a" * 300)), env=self.env)
        self.assertIn("a: cannot be created as a folder: File name too long", message)

    def test_folder_that_cannot_be_written(self):
        user = self.as_ordinary_user()
        folder = self.dir / "out"
        folder.mkdir()
        folder.chmod(0o555)
        message = self.fail_with(1, "learn", "--output", str(folder), env=self.env, **user)
        self.assertIn("out/1-dot-product.html: cannot be written: Permission denied", message)

    def test_no_home(self):
        message = self.fail_with(2, "learn", env={**self.env, "HOME": ""})
        self.assertIn("HOME is not set; say where to write the pages with --output DIR", message)
        self.assertIn("--output: expected the name of a folder", self.fail_with(2, "learn", "--output", ""))

    def test_language(self):
        message = self.fail_with(2, "learn", "--language", "xx", env=self.env)
        self.assertIn("--language: expected one of en", message)

    # ---- One lesson

    def test_names_and_numbers(self):
        for i, name in enumerate(NAMES, 1):
            for typed in (name, str(i), name.upper(), name.replace("-", " ")):
                text = self.learn(typed, "--no-open", "--output", str(self.dir / "out"))
                self.assertEqual(text, f"Open in a browser: {self.url(PAGES[i - 1], self.dir / 'out')}\n")

    def test_unknown_lesson(self):
        message = self.fail_with(2, "learn", "softmacks", env=self.env)
        self.assertIn('LESSON: expected one of dot-product, softmax', message)
        self.assertIn('(did you mean "softmax"?)', message)
        self.assertIn('got "99"', self.fail_with(2, "learn", "99", env=self.env))
        self.assertEqual(list(self.home.iterdir()), [])

    # ---- Browser

    def test_opens_the_index(self):
        text = self.learn(BROWSER=self.browser())
        self.assertIn(f"Opening in the browser: {self.url('index.html')}\n", text)
        self.assertEqual(self.seen(), [self.url("index.html")])

    def test_opens_a_lesson(self):
        self.learn("2", BROWSER=self.browser())
        self.assertEqual(self.seen(), [self.url(PAGES[1])])

    def test_does_not_wait(self):
        begin = time.monotonic()
        self.learn(BROWSER=self.browser(delay=20))
        self.assertLess(time.monotonic() - begin, 15)

    def test_no_open(self):
        text = self.learn("--no-open", BROWSER=self.browser())
        self.assertIn("Open in a browser: ", text)
        time.sleep(0.3)
        self.assertFalse((self.dir / "browser.seen").exists())

    def test_browsers_are_tried_in_order(self):
        self.learn(BROWSER=f"/nowhere/browser::{self.browser()} --new %s")
        self.assertEqual(self.seen(), ["--new", self.url("index.html")])

    def test_browser_is_not_a_shell_command(self):
        text = self.learn(BROWSER=f"true; touch {self.dir}/made")
        self.assertIn("Open in a browser: ", text)
        self.assertFalse((self.dir / "made").exists())

    def test_xdg_open_needs_a_screen(self):
        self.browser("xdg-open")
        path = {"PATH": str(self.dir)}
        self.assertIn("Open in a browser: ", self.learn(**path))
        self.assertIn("Opening in the browser: ", self.learn(DISPLAY=":0", **path))
        self.assertEqual(self.seen("xdg-open"), [self.url("index.html")])


if __name__ == "__main__":
    unittest.main()
