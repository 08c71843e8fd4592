# SPDX-License-Identifier: Apache-2.0
"""`fovea explain --check`: exit codes, and detection of every wrong expected number.

The mutation test changes each number that the notebooks' scenes expect by two units in its last
digit, up and down, one at a time. Each change must be detected.
"""

import concurrent.futures
import copy
import decimal
import json
import unittest

from support import EXAMPLES, SANITIZED, CliTest, run, scene

NOTEBOOKS = [path for path in EXAMPLES if path.name.startswith("00")]


def parse_exactly(text):
    """Parses JSON and keeps the digits of each number as written."""
    return json.loads(text, parse_float=decimal.Decimal, parse_int=decimal.Decimal)


def write_exactly(value):
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{write_exactly(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(write_exactly, value)) + "]"
    return json.dumps(value)


def number_places(values, place=()):
    """Yields the index paths of all numbers in nested lists."""
    if isinstance(values, list):
        for i, part in enumerate(values):
            yield from number_places(part, (*place, i))
    elif isinstance(values, decimal.Decimal):
        yield place


def last_digit(number, expectation):
    """Returns one unit in the last digit that the expectation specifies."""
    if "digits" in expectation:
        exponent = -int(expectation["digits"])
    elif "significant" in expectation and number != 0:
        exponent = number.adjusted() - int(expectation["significant"]) + 1
    else:
        exponent = number.as_tuple().exponent
    return decimal.Decimal((0, (1,), exponent))


def mutations(text):
    """Yields (description, text of the changed scene) for each expected number, up and down."""
    original = parse_exactly(text)
    for i, expectation in enumerate(original["expect"]):
        for place in number_places(expectation["values"]):
            for units in (2, -2):
                changed = copy.deepcopy(original)
                holder, key = changed["expect"][i], "values"
                for index in place:
                    holder, key = holder[key], index
                before = holder[key]
                holder[key] = before + units * last_digit(before, expectation)
                label = (f"expect[{i}] {expectation['step']} {list(place)}: "
                         f"{before} -> {holder[key]}")
                yield label, write_exactly(changed)


class MutationTest(CliTest):
    def test_every_mutation_is_detected(self):
        self.assertEqual(len(NOTEBOOKS), 5)
        total = 0
        missed = []
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for path in NOTEBOOKS:
                text = path.read_text(encoding="utf-8")
                rewritten = write_exactly(parse_exactly(text))
                unchanged = run("explain", "-", "--check", stdin=rewritten)
                self.assertEqual(unchanged.returncode, 0, path)
                # Memory is used in the same way in all cases, so sanitizer builds run every ninth one.
                # Upward and downward changes still alternate, because 9 is odd.
                cases = list(mutations(text))[::9 if SANITIZED else 1]
                codes = pool.map(
                    lambda case: run("explain", "-", "--check", stdin=case[1]).returncode, cases)
                for (label, _), code in zip(cases, codes):
                    if code != 1:
                        missed.append(f"{path.name}: {label}: exit {code}")
                print(f"{path.name}: {len(cases)} mutations of expected numbers")
                self.assertGreater(len(cases), 0, path)
                total += len(cases)
        print(f"{total} mutations")
        self.assertEqual(missed, [])

    def test_the_mutations_are_two_units(self):
        text = ('{"expect": [{"step": "a", "digits": 2, "values": [0.1234, [5]]},'
                ' {"step": "b", "significant": 3, "values": 1234.5}, {"step": "c", "values": 7},'
                ' {"step": "d", "rtol": 0.1, "values": [0.50, "inf"]}]}')
        changed = [label.split(" -> ")[1] for label, _ in mutations(text)]
        self.assertEqual(changed, ["0.1434", "0.1034", "5.02", "4.98", "1254.5", "1214.5", "9", "5",
                                   "0.52", "0.48"])


class CheckTest(CliTest):
    GOOD = {"step": "focus.scores", "digits": 4, "values": [0.9544, 1.4950, 1.4754]}
    SCORE = {"kind": "dot", "scale": 1}

    def checked(self, *expect):
        return scene(score=self.SCORE, expect=list(expect))

    def test_all_examples_pass(self):
        for path in EXAMPLES:
            if "expect" not in json.loads(path.read_text(encoding="utf-8")):
                continue
            lines = self.succeed("explain", str(path), "--check").splitlines()
            expected = len(json.loads(path.read_text(encoding="utf-8"))["expect"])
            self.assertGreaterEqual(len(lines), expected, path)

    def test_one_line_per_expectation(self):
        text = self.succeed("explain", "-", "--check", stdin=self.checked(
            self.GOOD, {"step": "tokens", "values": ["Your", "journey", "starts"]}))
        lines = text.splitlines()
        self.assertIn("focus.scores", lines[0])
        self.assertIn("tokens", lines[1])

    def test_a_wrong_number_fails(self):
        wrong = dict(self.GOOD, values=[0.9544, 1.4950, 1.4758])
        result = run("explain", "-", "--check", stdin=self.checked(self.GOOD, wrong))
        self.assertEqual((result.returncode, result.stderr), (1, b""))
        good, bad = result.stdout.decode().splitlines()[:2]
        self.assertNotEqual(good, bad)

    def test_wrong_shape_and_word_fail(self):
        for wrong in ({"step": "focus.scores", "digits": 4, "values": [0.9544, 1.4950]},
                      {"step": "tokens", "values": ["Your", "journey", "ends"]}):
            result = run("explain", "-", "--check", stdin=self.checked(wrong))
            self.assertEqual(result.returncode, 1, wrong)
            self.assertEqual(result.stderr, b"", wrong)

    def test_nothing_to_check(self):
        path = self.write("plain.json", scene())
        message = self.fail_with(2, "explain", path, "--check")
        self.assertIn(path, message)
        self.assertIn('no "expect"', message)

    def test_json_has_the_checks_and_the_same_exit_code(self):
        wrong = dict(self.GOOD, values=[0.9544, 1.4950, 1.4758])
        for expect, code in (([self.GOOD], 0), ([self.GOOD, wrong], 1)):
            result = run("explain", "-", "--check", "--format", "json",
                         stdin=self.checked(*expect))
            self.assertEqual(result.returncode, code)
            document = json.loads(result.stdout)
            self.assertEqual(len(document["checks"]), len(expect))
            self.assertTrue(document["steps"])

    def test_output_option_redirects_the_story(self):
        path = self.dir / "story.txt"
        lines = self.succeed("explain", "-", "--check", "--output", str(path),
                             stdin=self.checked(self.GOOD))
        self.assertIn("focus.scores", lines)
        self.assertEqual(path.read_text(encoding="utf-8"),
                         self.succeed("explain", "-", stdin=self.checked(self.GOOD)))

    def test_failed_check_with_a_closed_pipe(self):
        wrong = dict(self.GOOD, values=[0, 0, 0])
        result = run("explain", "-", "--check", stdin=self.checked(wrong),
                     stdout=self.pipe_without_reader())
        self.assertEqual((result.returncode, result.stderr), (1, b""))

    def test_check_requires_text_or_json(self):
        for format_name in ("html", "markdown"):
            message = self.fail_with(2, "explain", "-", "--check", "--format", format_name)
            self.assertIn("--check", message)
        self.assertEqual(self.files(), [])

    def test_check_is_rejected_with_text(self):
        self.assertIn("--check", self.fail_with(2, "explain", "--text", "a b", "--check"))


if __name__ == "__main__":
    unittest.main()
