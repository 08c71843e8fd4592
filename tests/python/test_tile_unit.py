# SPDX-License-Identifier: Apache-2.0
"""The tile unit (AMX) gives the same bits as its emulation. A process chooses its SIMD target once, so each target
runs in a process of its own."""

import os
import subprocess
import sys

import pytest

import fovea

CODE = """
import sys
import ml_dtypes
import numpy as np
import fovea

random = np.random.default_rng(1)
dtype = np.dtype(getattr(ml_dtypes, sys.argv[1], sys.argv[1]))
assert fovea.info().target == sys.argv[2], fovea.info()
masks = [None, fovea.causal(), fovea.window(70, 5), fovea.prefix(9)]
out = []
for heads, q, k, d, dv in [(2, 300, 333, 64, 64), (1, 97, 700, 40, 72), (2, 129, 64, 5, 3), (1, 130, 2100, 128, 128)]:
    for factor in (1, 8):
        arrays = [factor * random.standard_normal((1, heads, n, m)).astype(np.float32)
                  for n, m in ((q, d), (k, d), (k, dv))]
        for mask in masks:
            for options in ({}, {"softcap": 3.0}, {"scale": -0.2}):
                inputs = [a.astype(dtype) for a in arrays]
                context, lse = fovea.attention(*inputs, mask=mask, return_lse=True, **options)
                out += [context, lse]
                if factor == 1:
                    gradient = random.standard_normal(context.shape).astype(dtype)
                    found = fovea.attention_backward(*inputs, context, lse, gradient, mask=mask, **options)
                    out += [found.query, found.key, found.value]
sys.stdout.buffer.write(b"".join(a.tobytes() for a in out))
"""


def run(target, code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        check=False,
        env={**os.environ, "FOVEA_TARGET": target},
    )


def outputs(dtype, target):
    result = run(target, CODE, dtype, target)
    assert result.returncode == 0, result.stderr.decode()
    assert len(result.stdout) > 1000000
    return result.stdout


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_same_bits_as_the_emulation(dtype):
    if "AMX" not in fovea.info().targets:
        pytest.skip("this CPU or this system has no AMX")
    if b"expected one of" in run("AMX_EMULATED", "import fovea; fovea.info()").stderr:
        pytest.skip("this build has no tests in C++, so no emulation")
    assert outputs(dtype, "AMX") == outputs(dtype, "AMX_EMULATED")
