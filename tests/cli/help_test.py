# SPDX-License-Identifier: Apache-2.0
"""The help and man pages, the version, and `fovea info`."""

import json
import re
import shutil
import subprocess
import unittest

from support import BENCH, FOVEA, TRAINS, VIEWS, CliTest, environment, run

PAGES = {
    "fovea": ["--help"],
    "fovea learn": ["learn", "--help"],
    "fovea explain": ["explain", "--help"],
    "fovea inspect": ["inspect", "--help"],
    "fovea attend": ["attend", "--help"],
    "fovea map": ["map", "--help"],
    "fovea tile": ["tile", "--help"],
    "fovea heads": ["heads", "--help"],
    "fovea diff": ["diff", "--help"],
    "fovea rollout": ["rollout", "--help"],
    "fovea record": ["record", "--help"],
    "fovea-bench": ["--help"],
    "fovea info": ["info", "--help"],
    "fovea completion": ["completion", "--help"],
}
if VIEWS:
    PAGES["fovea view"] = ["view", "--help"]
if TRAINS:
    PAGES["fovea train"] = ["train", "--help"]
    PAGES["fovea train scene"] = ["train", "scene", "--help"]
    PAGES["fovea train translate"] = ["train", "translate", "--help"]
    PAGES["fovea translate"] = ["translate", "--help"]
EXPLAIN_OPTIONS = ["--query", "--format", "--output", "--check", "--color", "--width", "--text",
                   "--dim", "--seed", "--causal", "--heads", "--projections", "--help"]


class HelpTest(CliTest):
    def page(self, name):
        return self.succeed(*PAGES[name], program=BENCH if name == "fovea-bench" else FOVEA)

    def test_pages_fit_80_columns(self):
        for name in PAGES:
            for line in self.page(name).splitlines():
                self.assertLessEqual(len(line), 80, (name, line))
                self.assertEqual(line, line.rstrip(), name)
                self.assertNotIn("\t", line, name)

    def test_pages_have_all_sections(self):
        for name in PAGES:
            page = self.page(name)
            headings = re.findall(r"^[A-Z][A-Z ]+$", page, re.MULTILINE)
            for heading in ("NAME", "EXAMPLE", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS",
                            "EXAMPLES", "SEE ALSO"):
                self.assertEqual(headings.count(heading), 1, (name, heading))
            self.assertIn(f"NAME\n    {name} - ", page)

    def test_pages_begin_with_an_example(self):
        for name in PAGES:
            page = self.page(name)
            example = re.match(r"NAME\n    .*\n\nEXAMPLE\n    (.*)\n\nSYNOPSIS\n", page).group(1)
            self.assertIn(name, example)
            self.assertEqual(len(re.findall(rf"(?m)^    {re.escape(example)}$", page)), 1, name)

    def test_every_option_has_one_entry(self):
        page = self.succeed("explain", "--help")
        for option in EXPLAIN_OPTIONS:
            entries = re.findall(rf"^    (?:-\w, )?{option}\b", page, re.MULTILINE)
            self.assertEqual(len(entries), 1, option)

    def test_every_option_on_the_page_exists(self):
        page = self.succeed("explain", "--help")
        for option in sorted(set(re.findall(r"--[a-z]+", page))):
            result = run("explain", option, "value")
            self.assertNotIn(b"unknown option", result.stderr, option)

    def test_attend_help_options_exist(self):
        page = self.succeed("attend", "--help")
        shown = sorted(set(re.findall(r"--[a-z][a-z-]+", page)))
        self.assertGreater(len(shown), 25)
        for option in shown:
            result = run("attend", option, "1")
            self.assertNotIn(b"unknown option", result.stderr, option)
            self.assertEqual(len(re.findall(rf"(?m)^    (?:-\w, )?{option}(?: |$)", page)), 1, option)

    def test_descriptions_are_aligned(self):
        page = self.succeed("explain", "--help")
        options = re.search(r"^OPTIONS\n(.*?)\n\n", page, re.MULTILINE | re.DOTALL).group(1)
        starts = re.findall(r"^(    -\S+(?: \S+)* {2,}| {8,})\S", options, re.MULTILINE)
        self.assertEqual(len(starts), len(options.splitlines()))
        columns = {len(start) for start in starts}
        self.assertEqual(len(columns), 1, columns)

    def test_exit_codes_are_listed(self):
        for name in PAGES:
            page = self.page(name)
            section = page[page.index("EXIT STATUS"):]
            for code in ("0", "1", "2", "130"):
                self.assertRegex(section, rf"(?m)^    {code} ")

    def test_environment_is_listed(self):
        page = self.succeed("explain", "--help")
        for variable in ("COLUMNS", "NO_COLOR", "TERM", "COLORTERM"):
            self.assertRegex(page, rf"(?m)^    {variable} ")

    def test_sentence_examples_run(self):
        page = re.sub(r"(?s)\nSYNOPSIS\n.*?\n\n", "", self.succeed("explain", "--help").partition("\nEXAMPLE\n")[2])
        examples = re.findall(r"^    fovea (explain --text .*)$", page, re.MULTILINE)
        self.assertGreaterEqual(len(examples), 2)
        for example in examples:
            arguments = [part.strip('"') for part in re.findall(r'"[^"]*"|\S+', example)]
            self.assertGreater(len(self.succeed(*arguments)), 100, example)

    def test_short_flag(self):
        self.assertEqual(self.succeed("-h"), self.succeed("--help"))
        self.assertEqual(self.succeed("explain", "-h"), self.succeed("explain", "--help"))

    def test_man_pages(self):
        """Each man page passes mandoc's lint and has the text of the help page."""
        if shutil.which("mandoc") is None:
            self.skipTest("no mandoc, which tools/setup.sh test installs")

        def mandoc(output_format, page):
            return subprocess.run(["mandoc", "-T", output_format], input=page, stdout=subprocess.PIPE, encoding="utf-8",
                                  check=False).stdout

        for name, arguments in PAGES.items():
            with self.subTest(name):
                page = self.succeed(*arguments[:-1], "--man", program=BENCH if name == "fovea-bench" else FOVEA)
                self.assertEqual(mandoc("lint", page), "")
                self.assertIn(f".SH NAME\n{name.replace(' ', '-')} ", page.replace("\\-", "-"))
                shown = re.sub(".\b", "", mandoc("utf8", page))  # bold text is overstruck
                words = shown[shown.index("EXAMPLE"):].split()
                expected = self.page(name)
                expected = expected[expected.index("EXAMPLE"):].split()
                self.assertEqual(words[:len(expected)], expected)

    def test_source_date_epoch_sets_the_man_page_date(self):
        page = self.succeed("info", "--man", env=environment(SOURCE_DATE_EPOCH="86400"))
        self.assertIn(" 1 1970-01-02 ", page.splitlines()[0])

    def test_no_arguments_prints_short_help_and_fails(self):
        result = run()
        self.assertEqual((result.returncode, result.stdout), (2, b""))
        text = result.stderr.decode()
        self.assertIn("Usage: fovea COMMAND", text)
        for command in ("learn", "explain", "inspect", "attend", "map", "tile", "heads", "view", "diff", "rollout",
                        "record", "train", "info", "completion"):
            self.assertRegex(text, rf"(?m)^    {command} +\w")
        self.assertLessEqual(len(text.splitlines()), 24)

    def test_commands_are_grouped_by_purpose(self):
        groups = [("Learn", {"learn", "explain"}), ("Look", {"inspect", "map", "tile", "heads", "view", "diff",
                                                              "rollout"}),
                  ("Compute", {"attend", "record"}), ("Train", {"train", "translate"}),
                  ("Measure (fovea-bench) and set up", {"info", "completion"})]
        page = self.succeed("--help").partition("\nCOMMANDS\n")[2].partition("\n\n")[0]
        short = run().stderr.decode().partition("\n\n")[2].partition("\n\n")[0]
        for text in (page, short):
            found = [(heading, set(re.findall(r"(?m)^    ([a-z]+) ", commands)))
                     for heading, commands in re.findall(r"(?m)^  (\S.*)\n((?:    .*\n?)+)", text)]
            self.assertEqual(found, groups)


class InfoTest(CliTest):
    def test_version(self):
        info = json.loads(self.succeed("info", "--json"))
        self.assertRegex(info["version"], r"\A\d+\.\d+\.\d+\Z")
        build = f"{info['computes_with']['target']}, {info['compiler']}, {info['build_type']}"
        self.assertEqual(self.succeed("--version"), f"fovea {info['version']} ({build})\n")

    def test_info_json(self):
        info = json.loads(self.succeed("info", "--json"))
        self.assertGreaterEqual(info["threads"], 1)
        self.assertGreaterEqual(len(info["targets"]), 1)
        self.assertTrue(all(isinstance(target, str) and target for target in info["targets"]))
        self.assertRegex(info["compiler"], r"\d+\.\d+")
        self.assertTrue(info["build_type"])
        self.assertEqual(info["computes_with"]["engine"], "fused")
        self.assertIn(info["computes_with"]["target"], info["targets"])
        self.assertGreaterEqual(info["computes_with"]["threads"], 1)
        self.assertEqual(info["judged_by"], "reference")
        self.assertEqual(list(info["products"]), ["float32", "bfloat16", "float16"])

    def test_info_text_matches_json(self):
        info = json.loads(self.succeed("info", "--json"))
        text = self.succeed("info")
        for fact in (info["version"], info["compiler"], info["build_type"], *info["targets"]):
            self.assertIn(fact, text)
        self.assertIn(f"the fused engine, on {info['computes_with']['target']}, up to", text)
        self.assertIn("scalar, in float64", text)
        for dtype, by in info["products"].items():
            self.assertIn(f"{dtype}: {by}\n", text)

    def test_environment_selects_target_and_threads(self):
        for target in json.loads(self.succeed("info", "--json"))["targets"]:
            changed = environment(FOVEA_TARGET=target, OMP_NUM_THREADS="1")
            info = json.loads(self.succeed("info", "--json", env=changed))
            self.assertEqual(info["computes_with"],
                             {"engine": "fused", "target": target, "threads": 1})
            if target in ("SSE4", "SCALAR"):
                self.assertEqual(info["products"]["float32"], "multiplications and additions")
            else:
                self.assertIn("fused multiply-adds", info["products"]["float32"])
            self.assertIn(f"on {target}, up to 1 thread\n", self.succeed("info", env=changed))

    def test_unknown_target_is_rejected(self):
        message = self.fail_with(2, "info", env=environment(FOVEA_TARGET="AVX9"))
        self.assertIn("FOVEA_TARGET: expected one of", message)
        self.assertIn('got "AVX9"', message)


if __name__ == "__main__":
    unittest.main()
