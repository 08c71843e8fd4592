# SPDX-License-Identifier: Apache-2.0
"""`fovea train scene`: outputs, exit codes, signals and errors, and the message of a build without
fovea::nn."""

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import time
import unittest

from support import (FOVEA, SOURCE, TIMEOUT_S, TRAINS, CliTest, await_handler, default_signals,
                     environment, run, scene)

JOURNEY = str(SOURCE / "examples" / "scenes" / "learn_journey.json")


def learning(**changes):
    """Returns the text of a small scene that is easy to learn."""
    return scene(**{"learn": {"Your": {"journey": 0.9}}, **changes})


# A scene with slow steps and a wish that cannot be met.
ALIKE = json.dumps({"tokens": ["a"] + ["b"] * 60, "embeddings": [[1, 0]] + [[0, 1]] * 60,
                    "learn": {"a": {"@1": 0.9}}})


@unittest.skipUnless(TRAINS, "built without fovea::nn")
class OutputTest(CliTest):
    def test_notebook_sentence(self):
        path = self.dir / "learned.json"
        text = self.succeed("train", "scene", JOURNEY, "--output", str(path))
        headings = re.findall(r"(?m)^[A-Z]\w+$", text)
        self.assertEqual(headings, ["Before", "Learning", "After", "Wishes"])
        wish = re.search(r'^   "one" -> "journey"  (\S+) -> (\S+)  wanted 0.9  met$', text, re.MULTILINE)
        self.assertEqual(wish.group(1), "0.1958")
        self.assertGreaterEqual(float(wish.group(2)), 0.9)
        self.assertIn(f"\nWritten to {path}\n", text)
        losses = [float(x) for x in re.findall(r"(?m)^ +\d+  (\d+\.\d{6})$", text)]
        self.assertGreater(len(losses), 5)
        self.assertLess(losses[-1], losses[0])
        self.assertEqual(self.files(), ["learned.json"])

        steps = {step["name"]: step["values"]
                 for step in json.loads(self.succeed("explain", str(path), "--format", "json"))["steps"]}
        self.assertGreaterEqual(steps["weights"][4][1], 0.9)
        for row in steps["weights"]:
            self.assertAlmostEqual(sum(row), 1.0, places=14)
        # Both tables match those of explain.
        for table, explained in (("Before", JOURNEY), ("After", str(path))):
            shown = text.partition(f"\n{table}\n")[2].partition("\n\n")[0]
            self.assertIn(shown, self.succeed("explain", explained))

    def test_json_matches_the_text(self):
        path = str(self.dir / "learned.json")
        told = json.loads(self.succeed("train", "scene", JOURNEY, "--json", "--output", path))
        self.assertEqual((told["end"], told["output"]), ("reached", path))
        self.assertEqual(len(told["losses"]), told["steps"] + 1)
        self.assertEqual(len(told["wishes"]), 1)
        wish = told["wishes"][0]
        self.assertEqual((wish["query"], wish["query_index"], wish["key"], wish["key_index"]),
                         ("one", 4, "journey", 1))
        self.assertEqual((wish["wanted"], wish["met"]), (0.9, True))
        focus = json.loads(self.succeed("explain", path, "--format", "json"))
        weights = next(step["values"] for step in focus["steps"] if step["name"] == "focus.weights")
        self.assertEqual(wish["after"], [weights[1]])  # bit-identical
        self.assertIsNone(json.loads(self.succeed("train", "scene", JOURNEY, "--json"))["output"])

    def test_standard_input(self):
        text = self.succeed("train", "scene", "-", stdin=learning())
        self.assertIn("Every wish is met", text)

    def test_heads_batches_and_repeated_words(self):
        batch = {"title": "Two", "tokens": [["a", "b", "b"], ["c", "d", "."]], "seed": 4, "heads": 2,
                 "embeddings": {"draw": "randn", "dim": 4}, "mask": {"key_lengths": [3, 2]},
                 "learn": {"@0:1": {"@2": 0.7}, "c": {"d": 0.6, "c": 0}}}
        text = self.succeed("train", "scene", "-", stdin=json.dumps(batch))
        self.assertIn("\nWishes, each by the furthest of 2 heads\n", text)
        self.assertRegex(text, r'(?m)^   item 0: "b" @1 -> "b" @2  .* wanted 0.7  met$')
        self.assertRegex(text, r'(?m)^   item 1: "c" -> "c"        .* wanted 0  met$')
        told = json.loads(self.succeed("train", "scene", "-", "--json", stdin=json.dumps(batch)))
        self.assertEqual([wish["item"] for wish in told["wishes"]], [0, 1, 1])
        self.assertTrue(all(len(wish["after"]) == 2 for wish in told["wishes"]))

    def test_output_is_deterministic(self):
        self.assertEqual(self.succeed("train", "scene", JOURNEY, "--json", "--seed", "5"),
                         self.succeed("train", "scene", JOURNEY, "--json", "--seed", "5"))
        self.assertNotEqual(self.succeed("train", "scene", JOURNEY, "--json", "--seed", "5"),
                            self.succeed("train", "scene", JOURNEY, "--json"))

    def test_nothing_to_do(self):
        text = self.succeed("train", "scene", "-", stdin=learning(learn={"Your": {"journey": 0}},
                                                                  score={"bias": [0, -50, 0]}))
        self.assertIn("Every wish is met already.", text)

    def test_escape_sequences_are_not_printed(self):
        text = self.succeed("train", "scene", "-", stdin=learning(
            title="\x1b[2J", tokens=["Your\x1b[31m", "journey", "starts"],
            learn={"@0": {"journey": 0.9}}, focus=1))
        self.assertNotIn("\x1b", text)

    def test_progress_on_a_terminal(self):
        main, terminal = pty.openpty()
        self.addCleanup(os.close, main)
        process = subprocess.Popen([FOVEA, "train", "scene", "-", "--steps", "1000"], stderr=terminal,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment())
        os.close(terminal)
        out, _ = process.communicate(ALIKE.encode(), timeout=TIMEOUT_S)
        seen = b""
        with contextlib.suppress(OSError):  # Linux reports the closed terminal as an error
            while part := os.read(main, 100000):
                seen += part
        self.assertEqual(process.returncode, 1)
        self.assertRegex(seen, rb"step \d+ of 1000, loss [0-9.]+, 0 of 1 wishes met")
        self.assertTrue(seen.endswith(b"\r\x1b[K"), seen)
        self.assertNotIn(b"\x1b", out)


@unittest.skipUnless(TRAINS, "built without fovea::nn")
class EndTest(CliTest):
    def test_not_reached(self):
        path = self.dir / "learned.json"
        result = run("train", "scene", JOURNEY, "--steps", "10", "--output", str(path))
        self.assertEqual((result.returncode, result.stderr), (1, b""))
        self.assertIn(b"wanted 0.9  not met\nNot every wish is met after 10 steps", result.stdout)
        self.assertTrue(path.exists())
        told = run("train", "scene", JOURNEY, "--steps", "10", "--json")
        self.assertEqual((told.returncode, json.loads(told.stdout)["end"]), (1, "out of steps"))

    def test_training_can_be_continued(self):
        path = str(self.dir / "learned.json")
        self.assertEqual(run("train", "scene", JOURNEY, "--steps", "100", "--output", path).returncode, 1)
        self.assertIn("Every wish is met", self.succeed("train", "scene", path))

    def test_nonfinite_values_are_rejected(self):
        path = self.dir / "learned.json"
        message = self.fail_with(1, "train", "scene", JOURNEY, "--learning-rate", "1e200", "--output",
                                 str(path))
        self.assertIn(f"{JOURNEY}: what was learned is not finite after step 1, and nothing is written",
                      message)
        self.assertFalse(path.exists())
        message = self.fail_with(1, "train", "scene", "-", stdin=learning(
            embeddings=[[1e200], [1e200], [1e200]]))
        self.assertIn("standard input: the weights that learning begins with are not finite", message)

    def interrupted(self, number, *arguments):
        """Returns the output of a run interrupted during training; retries if the signal came before step 1."""
        for patience in (0.3, 1, 3, 10):
            process = subprocess.Popen([FOVEA, "train", "scene", "-", "--steps", "1000000", *arguments],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, env=environment(),
                                       preexec_fn=default_signals)
            process.stdin.write(ALIKE.encode())
            process.stdin.close()
            process.stdin = None
            await_handler(process, number)
            time.sleep(patience)
            process.send_signal(number)
            out, err = process.communicate(timeout=TIMEOUT_S)
            self.assertEqual((process.returncode, err), (128 + number, b""))
            if out:
                return out.decode()
        self.fail("no step was made in ten seconds")

    def test_interrupted(self):
        path = self.dir / "learned.json"
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            text = self.interrupted(number, "--output", str(path))
            self.assertRegex(text, r"(?m)^Interrupted after [1-9]\d* of 1000000 steps\.$")
            self.succeed("explain", str(path))
            path.unlink()
        told = json.loads(self.interrupted(signal.SIGINT, "--json"))
        self.assertEqual(told["end"], "interrupted")
        self.assertGreater(told["steps"], 0)
        self.assertEqual(self.files(), [])

    def test_disk_full(self):
        message = self.fail_with(1, "train", "scene", JOURNEY, "--output", "/dev/full")
        self.assertIn("/dev/full: cannot be written: No space left on device", message)

    def test_closed_pipe(self):
        result = run("train", "scene", JOURNEY, stdout=self.pipe_without_reader())
        self.assertEqual((result.returncode, result.stderr), (0, b""))


@unittest.skipUnless(TRAINS, "built without fovea::nn")
class ErrorTest(CliTest):
    def refused(self, *arguments, **options):
        return self.fail_with(2, "train", *arguments, **options)

    def test_missing_or_unknown_subcommand(self):
        self.assertIn("expected what to train: scene or translate; see fovea train --help", self.refused())
        self.assertIn('unknown command "scne" (did you mean "scene"?); see fovea train --help',
                      self.refused("scne"))

    def test_usage(self):
        self.assertIn("expected a SCENE file; see fovea train scene --help", self.refused("scene"))
        self.assertIn("SCENE: expected a file name", self.refused("scene", ""))
        self.assertIn("--output: expected a file name", self.refused("scene", JOURNEY, "--output", ""))
        for steps in ("0", "-1", "x", "1000001"):
            self.assertIn("--steps: expected a whole number from 1 to 1000000",
                          self.refused("scene", JOURNEY, "--steps", steps))
        for rate in ("0", "-1", "x", "inf", "nan"):
            self.assertIn("--learning-rate: expected a number",
                          self.refused("scene", JOURNEY, "--learning-rate", rate))
        self.assertIn("--seed: expected a whole number", self.refused("scene", JOURNEY, "--seed", "-1"))
        self.assertIn('unknown option "--stps" (did you mean "--steps"?); see fovea train scene --help',
                      self.refused("scene", JOURNEY, "--stps", "3"))
        self.assertIn('unexpected argument "more"', self.refused("scene", JOURNEY, "more"))

    def test_the_scene_is_not_overwritten(self):
        path = self.write("mine.json", learning())
        self.assertIn("is the scene itself", self.refused("scene", path, "--output", path))
        self.assertEqual((self.dir / "mine.json").read_text(), learning())

    def test_invalid_learn_members(self):
        path = str(self.dir / "mine.json")
        for changes, message in (
                ({"learn": None}, 'nothing to learn: the scene has no "learn"'),
                ({"learn": {}}, "learn: expected at least one query, got none"),
                ({"learn": [1]}, "learn: expected an object, got an array of 1"),
                ({"learn": {"jorney": {"Your": 1}}},
                 'learn.jorney: no word "jorney" in the scene; its words are: Your, journey, starts '
                 '(did you mean "journey"?)'),
                ({"learn": {"Your": {"starts": 1.5}}},
                 "learn.Your.starts: expected a number from 0 to 1, got 1.5"),
                ({"learn": {"Your": {"starts": 0.5, "journey": 0.75}}},
                 "learn.Your: expected weights that add up to at most 1, got 1.25"),
                ({"mask": "causal"}, "learn.Your.journey: expected a key that the query sees, got one "
                                     "that is masked: its weight is 0, whatever is learned")):
            self.write("mine.json", learning(**changes))
            self.assertEqual(self.refused("scene", path), f"fovea: {path}: {message}")
        self.assertIn("No such file", self.refused("scene", path + "x"))

    def test_help_lists_the_options(self):
        page = self.succeed("train", "scene", "--help")
        for option in ("--output", "--steps", "--learning-rate", "--seed", "--json", "--help"):
            self.assertEqual(len(re.findall(rf"(?m)^    (?:-\w, )?{option}(?: |$)", page)), 1, option)
        self.assertIn("COMMANDS\n    scene  ", self.succeed("train", "--help"))


@unittest.skipIf(TRAINS, "built with fovea::nn")
class AbsentTest(CliTest):
    def test_missing_module_is_reported(self):
        for arguments in ([], ["scene", JOURNEY], ["scene", "--steps", "3"], ["--help"]):
            self.assertEqual(self.fail_with(2, "train", *arguments),
                             "fovea: train: this fovea was built without what learns, with FOVEA_NN=OFF")


if __name__ == "__main__":
    unittest.main()
