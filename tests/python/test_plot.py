# SPDX-License-Identifier: Apache-2.0
"""Tests fovea.Weights.plot(), with a fake Axes, and with matplotlib if it is installed."""

import sys

import numpy as np
import pytest
from problems import raises, tensors

import fovea


class Axes:
    """A fake of matplotlib's Axes with the methods that plot() calls."""

    def imshow(self, cells, **options):
        self.cells, self.options = cells, options

    def set(self, **texts):
        self.texts = texts


def test_plot(monkeypatch):
    query, key, _ = tensors((10, 8), kv_len=300)
    w = fovea.Weights(query, key)
    axes = Axes()
    assert w.plot(ax=axes, columns=20) is axes
    assert np.array_equal(axes.cells, w.pool(10, 20, "max"))
    assert axes.options["extent"] == (-0.5, 299.5, 9.5, -0.5)
    assert axes.texts["title"] == "Weights(10 x 300)"
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with raises(ImportError, "plot: expected matplotlib", "pool(rows, columns)"):
        w.plot()


def test_plot_of_a_part():
    query, key, _ = tensors((10, 8), kv_len=300)
    w = fovea.Weights(query, key)
    axes = w.plot(queries=slice(-4, None), keys=slice(100, 150), columns=7, reduce="mean", ax=Axes(), norm="log")
    assert np.array_equal(axes.cells, w.pool(4, 7, "mean", queries=slice(6, 10), keys=slice(100, 150)))
    assert axes.options["extent"] == (99.5, 149.5, 9.5, 5.5)
    assert axes.options["norm"] == "log"


def test_plot_with_a_mask():
    query, key, _ = tensors((10, 8), kv_len=300)
    w = fovea.Weights(query, key, mask=fovea.causal())
    axes = w.plot(columns=100, ax=Axes())
    assert np.array_equal(axes.cells.data, w.pool(10, 100, "max"))
    # Query i is at position 290 + i, and a column of the map has three keys.
    assert np.array_equal(axes.cells.mask, np.arange(0, 300, 3) > 290 + np.arange(10)[:, None])


def test_plot_with_matplotlib():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    query, key, _ = tensors((10, 8), kv_len=300)
    w = fovea.Weights(query, key, mask=fovea.causal())
    axes = w.plot(columns=100)
    (image,) = axes.images
    assert np.array_equal(image.get_array().data, w.pool(10, 100, "max"))
    assert image.get_array().mask.sum() == 12
    assert (axes.get_xlim(), axes.get_ylim()) == ((-0.5, 299.5), (9.5, -0.5))
    assert axes.get_title() == "Weights(10 x 300, mask=causal())"
    w.plot(ax=axes, norm="log", aspect="equal")
    axes.figure.canvas.draw()
    assert len(np.unique(np.asarray(axes.figure.canvas.buffer_rgba()).reshape(-1, 4), axis=0)) > 50
