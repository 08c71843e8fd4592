# SPDX-License-Identifier: Apache-2.0
"""`fovea train translate` and `fovea translate`: training, killing and resuming a small model, translating
with it, and one-line error messages."""

import hashlib
import json
import random
import re
import signal
import subprocess
import time
import unittest

from support import FOVEA, TIMEOUT_S, TRAINS, CliTest, default_signals, environment, run

# A small and fast model that still uses every part of a run.
SMALL = ("--width", "16", "--heads", "2", "--inner", "32", "--layers", "1", "--batch", "16",
         "--warmup", "10", "--learning-rate", "0.01", "--dropout", "0.05")


def words(count, seed=1):
    """Returns lines, each with a random word, its reversal, and the origins of the reversed characters."""
    draw = random.Random(seed)
    lines = []
    for _ in range(count):
        word = "".join(draw.choice("abcd") for _ in range(draw.randint(1, 5)))
        origins = ",".join(f"{i}-{i + 1}={len(word) - 1 - i}-{len(word) - i}" for i in range(len(word)))
        lines.append(f"{word}\t{word[::-1]}\t{origins}\n")
    return "".join(lines)


@unittest.skipUnless(TRAINS, "built without fovea::nn")
class TranslateTest(CliTest):
    def setUp(self):
        super().setUp()
        self.data = self.write("words.tsv", words(400))
        self.folder = self.dir / "run"

    def command(self, *arguments):
        return ["train", "translate", "--output", str(self.folder), *arguments]

    def train(self, *arguments):
        return self.succeed(*self.command("--data", self.data, *SMALL, *arguments))

    def digests(self, folder=None):
        """Returns {file name: SHA-256} of the folder."""
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest()
                for path in sorted((folder or self.folder).iterdir())}


class Learning(TranslateTest):
    def test_a_model_learns_and_translates(self):
        for architecture in ("transformer", "gru"):
            with self.subTest(architecture):
                self.folder = self.dir / architecture
                command = self.command("--data", self.data, "--width", "24", "--batch", "32",
                                       "--architecture", architecture, "--learning-rate", "0.01",
                                       "--warmup", "50", "--steps", "400", "--validate-every", "100")
                text = self.succeed(*command)
                self.assertIn(f"{architecture}, ", text)
                self.assertIn("; 380 pairs to learn from, 20 to validate with\n", text)
                rows = re.findall(r"(?m)^ +(\d+) +(\S+) +(\S+) % +(\S+) +(\S+) % +\S+ s", text)
                self.assertEqual([row[0] for row in rows], ["100", "200", "300", "400"])
                self.assertLess(float(rows[-1][1]), float(rows[0][1]))
                self.assertGreaterEqual(max(float(row[2]) for row in rows), 90.0)
                self.assertEqual(sorted(path.name for path in self.folder.iterdir()),
                                 ["attention.html", "checkpoint.safetensors", "model.json",
                                  "model.safetensors", "run.json"])
                self.assertIn("Ended after 400 steps.\n", text)

                answers = self.succeed("translate", str(self.folder), "abc", "-", stdin="dd\ncab\n")
                self.assertEqual(len(answers.splitlines()), 3)
                self.assertEqual(answers.splitlines()[1], "dd")
                checked = self.succeed("translate", str(self.folder), "--pairs", self.data)
                exact = float(re.match(r"(\S+) % of 400 pairs are exact, chrF2 ", checked).group(1))
                self.assertGreaterEqual(exact, 90.0)
                told = json.loads(self.succeed("translate", str(self.folder), "--pairs", self.data, "--json"))
                self.assertAlmostEqual(100 * told["exact"], exact, places=2)
                self.assertEqual(told["pairs"], 400)

    def test_attention_is_drawn(self):
        self.train("--steps", "50")
        page = self.dir / "page.html"
        text = self.succeed("translate", str(self.folder), "abc", "--beams", "3", "--show-attention",
                            "--html", str(page))
        answer, _, picture = text.partition("\n\n")
        lines = picture.strip("\n").split("\n")
        self.assertEqual(lines[0].strip(), "abc⏎")
        self.assertEqual([line[0] for line in lines[1:]], [*answer, "⏎"])
        for line in lines[1:]:
            self.assertRegex(line, r"^. \|[ ░▒▓█]{4}\|$")
        self.assertIn(f"<figcaption>abc → {answer}</figcaption>", page.read_text())
        told = json.loads(self.succeed("translate", str(self.folder), "abc", "--beams", "3", "--json"))[0]
        self.assertEqual((told["source"], told["target"]), ("abc", answer))
        self.assertEqual(len(told["weights"]), len(answer) + 1)
        for row in told["weights"]:
            self.assertAlmostEqual(sum(row), 1.0, places=5)

    def test_separate_validation_file(self):
        other = self.write("other.tsv", words(7, seed=2).replace("\t", "\t", 1))
        text = self.train("--steps", "10", "--validation", other)
        self.assertIn("; 400 pairs to learn from, 7 to validate with\n", text)

    def test_characters_of_pairs_kept_to_validate(self):
        data = self.write("rare.tsv", words(19) + "x\ty\n")
        text = self.succeed(*self.command("--data", data, *SMALL, "--steps", "2"))
        self.assertIn("; 19 pairs to learn from, 1 to validate with\n", text)

    def test_until_ends_training(self):
        text = self.train("--steps", "5000", "--validate-every", "50", "--until", "0.5")
        self.assertRegex(text, r"Ended at step \d+: --until is reached\.\n")


class Resuming(TranslateTest):
    STEPS = ("--steps", "60", "--validate-every", "20")

    def setUp(self):
        super().setUp()
        self.train(*self.STEPS)
        self.whole = self.digests()
        self.folder = self.dir / "parts"

    def test_killed_run_resumes_bit_identically(self):
        draw = random.Random(7)
        resumed = []
        for number in range(4):
            begun = self.folder / "checkpoint.safetensors"
            arguments = ["--resume"] if begun.exists() else ["--data", self.data, *SMALL, *self.STEPS]
            if number == 3:
                resumed.append(self.succeed(*self.command(*arguments)))
                break
            process = subprocess.Popen([FOVEA, *self.command(*arguments)], env=environment(),
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            end = time.monotonic() + TIMEOUT_S
            while not begun.exists() and time.monotonic() < end:
                time.sleep(0.001)
            time.sleep(draw.uniform(0.0, 0.1))
            process.send_signal(signal.SIGKILL)
            process.wait(TIMEOUT_S)
        self.assertIn("; resumed at step ", resumed[-1])
        # A process that is killed during a write may leave a temporary file.
        parts = {name: digest for name, digest in self.digests().items() if name in self.whole}
        self.assertEqual(parts, self.whole)

    def test_interrupt_saves_immediately(self):
        command = self.command("--data", self.data, *SMALL, "--steps", "100000")
        process = subprocess.Popen([FOVEA, *command], env=environment(), stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, preexec_fn=default_signals)
        process.stdout.readline()
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        text, error = process.communicate(timeout=TIMEOUT_S)
        self.assertEqual((process.returncode, error), (130, b""))
        step = re.search(r"Ended at step (\d+), and saved: --resume goes on from there\.", text.decode())
        self.assertGreater(int(step.group(1)), 0)
        process = subprocess.Popen([FOVEA, *self.command("--resume")], env=environment(),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   preexec_fn=default_signals)
        self.assertIn(f"; resumed at step {step.group(1)}\n", process.stdout.readline().decode())
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=TIMEOUT_S)
        self.assertEqual(process.returncode, 130)


class Errors(TranslateTest):
    def fails(self, *arguments, code=2, **options):
        return self.fail_with(code, *arguments, **options)

    def test_invalid_usage(self):
        for arguments, message in (
                ([], "expected --output DIR"),
                (["--output", "x"], "expected --data FILE, or --resume"),
                (["--output", "x", "--resume", "--steps", "5"], "--steps goes with a new run; --resume goes on with"),
                (["--output", "x", "--data", "y", "--dropout", "1"], "--dropout: expected a share in [0, 1), got 1"),
                (["--output", "x", "--data", "y", "--rotary-base", "1"], "--rotary-base: expected a number above 1, or 0, got 1"),
                (["--output", "x", "--data", "y", "--until", "2"], "--until: expected a share in (0, 1], got 2"),
                (["--output", "x", "--data", "y", "--learning-rate", "0"], "--learning-rate: expected a number above 0, got 0"),
                (["--output", "x", "--data", "y", "--architecture", "gru", "--heads", "2"], "--heads goes with the transformer"),
                (["--output", "x", "--data", "y", "--architecture", "lstm"], "--architecture"),
                (["--output", "x", "--data", "y", "--steps", "0"], "--steps: expected a whole number from 1"),
                (["--output", str(self.folder), "--resume"], "there is no checkpoint to go on from"),
                (["--output", str(self.folder), "--data", self.data, "--heads", "3"], "heads: expected a divisor of width 64, got 3"),
        ):
            self.assertIn(message, self.fails("train", "translate", *arguments), arguments)
        for arguments, message in (
                ([], "expected a DIR with a model"),
                ([str(self.folder)], "expected a TEXT, or --pairs FILE"),
                ([str(self.folder), "a", "--pairs", "b"], "TEXT does not go with --pairs"),
                ([str(self.folder), "a", "--beams", "0"], "--beams: expected a whole number from 1"),
                ([str(self.folder), "a"], "model.json"),
        ):
            self.assertIn(message, self.fails("translate", *arguments), arguments)
        self.assertFalse(self.folder.exists())

    def test_invalid_data(self):
        for text, message in (
                ("", "bad.tsv: expected pairs, got nothing"),
                ("a\tb\nab\n", "bad.tsv:2: expected two or three columns"),
                (words(19), "bad.tsv: expected 20 pairs or more"),
        ):
            self.assertIn(message, self.fails(*self.command("--data", self.write("bad.tsv", text))), text)
        other = self.write("other.tsv", "x\ty\n")
        self.assertIn("other.tsv:1: expected characters that the model was trained on, got \"x\"",
                      self.fails(*self.command("--data", self.data, "--validation", other)))
        self.assertIn("nowhere.tsv", self.fails(*self.command("--data", "nowhere.tsv")))
        self.assertFalse(self.folder.exists())

    def test_refused_models_leave_nothing(self):
        for options, message in (
                (("--width", "6", "--heads", "2"), "rotary: expected an even number of dims to rotate, got 3"),
                (("--width", "6", "--heads", "4"), "heads: expected a divisor of width 6, got 4"),
        ):
            self.assertIn(message, self.fails(*self.command("--data", self.data, *options, "--steps", "2")))
            self.assertFalse(self.folder.exists())
        self.succeed(*self.command("--data", self.data, "--width", "6", "--heads", "3", "--steps", "2"))

    def test_invalid_runs(self):
        self.train("--steps", "5")
        self.assertIn("there is a run already; --resume goes on with it",
                      self.fails(*self.command("--data", self.data)))
        self.assertIn("got \"x\" in \"axe\"", self.fails("translate", str(self.folder), "axe"))
        other = self.write("other.tsv", "ab\tba\nab\tbx\n")
        self.assertIn("other.tsv:2: expected characters that the model was trained on, got \"x\"",
                      self.fails("translate", str(self.folder), "--pairs", other))
        self.assertIn("characters, got 99: ", self.fails("translate", str(self.folder), "a" * 99))
        self.assertIn("expected a text to translate, got an empty one", self.fails("translate", str(self.folder), ""))
        # Lines that end in CR LF, after a byte order mark.
        self.assertEqual(self.succeed("translate", str(self.folder), "-", stdin="\ufeffab\r\nba\r\n"),
                         self.succeed("translate", str(self.folder), "ab", "ba"))
        self.assertIn("line 2 of standard input: expected a text to translate, got an empty one",
                      self.fails("translate", str(self.folder), "-", stdin="ab\n\nba\n"))
        model = self.folder / "model.safetensors"
        model.rename(self.dir / "kept")
        self.assertIn("model.safetensors: cannot be read", self.fails(*self.command("--resume")))
        (self.dir / "kept").rename(model)
        self.write("words.tsv", words(400, seed=3))
        self.assertIn("made with other pairs or settings", self.fails(*self.command("--resume")))
        (self.folder / "checkpoint.safetensors").write_bytes(b"")
        self.assertIn("checkpoint.safetensors", self.fails(*self.command("--resume")))

    def test_nonfinite_loss(self):
        line = self.fails(*self.command("--data", self.data, *SMALL, "--steps", "500", "--warmup", "0",
                                        "--learning-rate", "1e30"), code=1)
        self.assertRegex(line, r"the loss is \S*(nan|inf) at step \d+; the checkpoint of step 0 is kept in ")
        self.assertIn("checkpoint.safetensors", self.digests())


if __name__ == "__main__":
    unittest.main()
