# SPDX-License-Identifier: Apache-2.0
"""Common parts of the suites: comparison, one line per case, and the summary line."""

import numpy as np


class Mismatch(Exception):
    """A result differs from the expected one."""


def compare(what, got, expected, rtol, atol):
    """Returns the largest error. Raises Mismatch unless |got - expected| <= atol + rtol |expected| everywhere;
    NaN matches nothing; infinity matches only itself."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        raise Mismatch(f"{what}: {got.dtype} {list(got.shape)}, expected {expected.dtype} {list(expected.shape)}")
    if got.size == 0:
        return 0.0
    wide, right = got.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore"):
        error = np.where(wide == right, 0, np.abs(wide - right))
    error = np.where(np.isnan(error), np.inf, error)
    allowed = atol + rtol * np.where(np.isinf(right), 0, np.abs(right))
    wrong = ~(error <= allowed)
    if wrong.any():
        at = np.unravel_index(np.argmax(np.where(wrong, error, -1)), error.shape)
        raise Mismatch(f"{what}: {wrong.sum()} of {wrong.size} numbers differ, by at most {error[at]:.3g} "
                       f"({got[at]}, expected {expected[at]}, at {list(map(int, at))})")
    return float(error.max())


class Tally:
    """Counts the cases and prints a line for each."""

    def __init__(self):
        self.passed = self.failed = 0

    def run(self, name, case):
        """Runs `case`, which returns the text to print on success, or raises."""
        try:
            said = case()
        except (Mismatch, ValueError) as problem:
            self.failed += 1
            print(f"FAILED   {name}: {problem}", flush=True)
        else:
            self.passed += 1
            print(f"ok       {name:70} {said}".rstrip())

    def run_group(self, name, cases):
        """Runs {name: function that returns its largest error}. Prints a line for each failed case, and one for
        all others."""
        errors = []
        for part, case in cases.items():
            try:
                errors.append(case())
            except (Mismatch, ValueError) as problem:
                self.failed += 1
                print(f"FAILED   {name}, {part}: {problem}", flush=True)
        self.passed += len(errors)
        if errors:
            print(f"ok       {name}: {len(errors)} cases, largest error {max(errors):.1e}", flush=True)

    def close(self, suite):
        """Prints the summary line and returns the exit status."""
        print(f"{suite}: {self.passed} passed, {self.failed} failed", flush=True)
        return 1 if self.failed else 0
