# SPDX-License-Identifier: Apache-2.0
"""Compares fovea.random with numpy.random."""

import numpy as np
import pytest
from problems import raises

import fovea


@pytest.mark.parametrize("seed", [0, 42, 2**32 - 1])
def test_numpys_stream(seed):
    ours, theirs = fovea.random.RandomState(seed), np.random.RandomState(seed)
    assert ours.randint(10) == theirs.randint(10)
    assert ours.randint(-5, 2**40) == theirs.randint(-5, 2**40, dtype=np.int64)
    assert np.array_equal(ours.randint(0, 7, size=(2, 3)), theirs.randint(0, 7, size=(2, 3)))
    assert np.array_equal(ours.randint(0, 7, 4), theirs.randint(0, 7, 4))
    assert ours.rand() == theirs.rand()
    assert np.array_equal(ours.rand(3, 2), theirs.rand(3, 2))
    np.testing.assert_array_max_ulp(ours.randn(), theirs.randn())
    np.testing.assert_array_max_ulp(ours.randn(4, 1, 3), theirs.randn(4, 1, 3))
    ours.seed(seed)
    assert np.array_equal(ours.rand(5), np.random.RandomState(seed).rand(5))


def test_types():
    random = fovea.random.RandomState(1)
    assert type(random.randint(3)) is int
    assert type(random.rand()) is type(random.randn()) is float
    assert random.randint(3, size=2).dtype == np.int64
    assert random.rand(0, 2).shape == (0, 2)


def test_refuses():
    with raises(ValueError, "seed: expected 0 or more, got -1"):
        fovea.random.RandomState(-1)
    with raises(ValueError, "seed", "4294967296"):
        fovea.random.RandomState(2**32)
    random = fovea.random.RandomState(1)
    with pytest.raises(ValueError, match="low"):
        random.randint(3, 3)
    with raises(TypeError, "shape", "float"):
        random.rand(1.5)
    with raises(ValueError, "extents", "-1"):
        random.randn(-1)
