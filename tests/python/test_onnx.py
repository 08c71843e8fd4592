# SPDX-License-Identifier: Apache-2.0
"""Runs ONNX's own node tests of Attention, with their data and tolerances, on every SIMD target of this machine:
pytest runs them on the default target, and starts this file as a program for each target. Cases whose name ends with
_expanded are excluded: they are graphs of other operators, without an Attention node.

Every Y must come from the engine: each case has to call attention_forward exactly once.
"""

import functools
import os
import subprocess
import sys
import unittest

import numpy as np
import onnx
import pytest
from onnx.backend.test import BackendTest
from onnx_backend import FoveaBackend

import fovea

# Case counts of the pinned version; fewer would mean that the suite was not found. FlexAttention has five more,
# which modify scores or weights by a subgraph.
CASES = {"Attention": 64, "FlexAttention": 6}
WITH_GRAPHS = {"causal_mask", "prob_mod", "relative_positional", "score_mod", "soft_cap"}


class Strict(BackendTest):
    """ONNX's runner, with a comparison that rejects NaN."""

    @classmethod
    def assert_similar_outputs(cls, ref_outputs, outputs, rtol, atol, model_dir=None):
        assert outputs
        for right, found in zip(ref_outputs, outputs, strict=True):
            assert not np.isnan(right).any()
            assert not np.isnan(found).any()
        super().assert_similar_outputs(ref_outputs, outputs, rtol, atol, model_dir)


class Counting(unittest.TestCase):
    def setUp(self):
        self.calls = fovea._fovea._forward_calls()

    def tearDown(self):
        assert fovea._fovea._forward_calls() == self.calls + 1


@functools.cache
def node_tests():
    return dict(vars(Strict(FoveaBackend, __name__).test_cases["OnnxBackendNodeModelTest"]))


def suite(prefix, left_out=()):
    """Returns the CPU cases with this prefix."""
    cases = {
        name: function
        for name, function in node_tests().items()
        if name.startswith(prefix) and name.endswith("_cpu") and "_expanded" not in name
    }
    return {name: cases[name] for name in cases if name.removeprefix(prefix + "_").removesuffix("_cpu") not in left_out}


TestAttention = type("TestAttention", (Counting,), suite("test_attention"))
TestFlexAttention = type("TestFlexAttention", (Counting,), suite("test_flexattention", WITH_GRAPHS))


def test_all_cases_are_there():
    assert onnx.__version__ == "1.22.0"
    names = {"Attention": TestAttention, "FlexAttention": TestFlexAttention}
    assert {name: sum(one.startswith("test_") for one in vars(names[name])) for name in CASES} == CASES
    assert len(suite("test_flexattention")) == CASES["FlexAttention"] + len(WITH_GRAPHS)


def run_here(target):
    """Runs all cases on `target`. Prints a line with their number, or the failures."""
    if fovea.info().target != target:
        sys.exit(f"FOVEA_TARGET={target} is not the target: {fovea.info()}")
    counts = []
    for name, case in (("Attention", TestAttention), ("FlexAttention", TestFlexAttention)):
        result = unittest.TextTestRunner(verbosity=0).run(unittest.defaultTestLoader.loadTestsFromTestCase(case))
        if not result.wasSuccessful() or result.skipped or result.testsRun != CASES[name]:
            sys.exit(f"{name} on {target}: {result}")
        counts.append(f"{name} {result.testsRun} passed, 0 failed, 0 skipped")
    return f"ONNX {onnx.__version__} on {target}: {'; '.join(counts)}"


@pytest.mark.parametrize("target", fovea.info().targets)
def test_every_target(target, say):
    result = subprocess.run(
        [sys.executable, "-B", "-W", "error", __file__, target],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "FOVEA_TARGET": target},
    )
    assert result.returncode == 0, result.stdout + result.stderr
    say(result.stdout.strip())


if __name__ == "__main__":
    print(run_here(sys.argv[1]))
