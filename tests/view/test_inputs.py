# SPDX-License-Identifier: Apache-2.0
"""The inputs of the other tests are what they say: their weights by the formula are those of `fovea tile`, and frames
are read as they are specified."""

import struct
import subprocess

import inputs
import numpy as np
import pytest
from server import FOVEA

# Rounding of scores, exponentials and sums of float32.
TOLERANCE = 2e-6


def tile(path, *options, folder):
    target = folder / "tile.npy"
    subprocess.run([FOVEA, "tile", *path, *options, "--output", target], check=True, capture_output=True)
    return np.load(target)


def test_weights_of_tensors(tmp_path):
    path = tmp_path / "layer.safetensors"
    ((query, key),) = inputs.tensors(path, q_len=99, kv_len=101, head_dim=8)
    for mask, options in (
        ({"mask": "causal"}, ["--causal"]),
        ({"mask": "none"}, []),
        (
            {"mask": "causal", "before": 7},
            ["--window", "7,0"],
        ),
    ):
        wanted, _ = inputs.weights(query[0, 0], key[0, 0], range(5, 20), **mask)
        found = tile(["--input", path], "--rows", "5:20", *options, folder=tmp_path)
        assert np.abs(wanted - found).max() < TOLERANCE, mask


def test_recordings(tmp_path):
    path = tmp_path / "run.safetensors"
    layers = inputs.recording(path, inputs.patterned_layers(layers=2, heads=5), inputs.words(96))
    for layer in range(2):
        for head in range(5):
            wanted, _ = inputs.weights(layers[layer][0][head], layers[layer][1][head], range(96))
            found = tile([path], "--layer", str(layer), "--head", str(head), folder=tmp_path)
            # Scores up to 300, in float32.
            assert np.abs(wanted - found).max() < 300 * TOLERANCE, (layer, head)


def test_planted(tmp_path):
    path = tmp_path / "planted.safetensors"
    query, key = inputs.planted(path, length=3000, query=777, key=123)
    found = tile(["--input", path], "--causal", "--rows", "770:780", folder=tmp_path)
    assert found[7, 123] == 1
    assert np.delete(found, 7, axis=0).max() < 0.5
    assert np.abs(found - inputs.weights(query, key, range(770, 780))[0]).max() < TOLERANCE


def test_wide(tmp_path):
    path = tmp_path / "wide.safetensors"
    query, key = inputs.wide(path, length=3 * inputs.WINDOW)
    rows = [0, 5000, 3 * inputs.WINDOW - 1]
    wanted, _ = inputs.weights(query, key, rows, before=inputs.WINDOW - 1)
    for row, line in zip(rows, wanted, strict=True):
        found = tile(["--input", path], *inputs.WIDE, "--rows", f"{row}:{row + 1}", folder=tmp_path)
        assert np.abs(found[0] - line).max() < TOLERANCE, row


def test_frames():
    codes = np.array([[0, 1, 2], [3 + round(1023 * (64 + np.log2(0.25))), 65475, 3]], "<u2")
    header = b"FVT1" + struct.pack("<BBBBIIHHIffI", 1, 1, 4, 5, 7, 9, 3, 2, 0, 0.25, 1.0, 0)
    data = struct.pack("<I", len(header) + codes.nbytes) + header + codes.tobytes()
    empty = struct.pack("<I", len(header)) + b"FVT1" + struct.pack("<BBBBIIHHIffI", 1, 0, 0, 3, 0, 0, 3, 2, 0, 0, 0, 0)
    fields, rest = inputs.frame(data + empty)
    assert (fields["reduce"], fields["level"], fields["flags"], fields["x"], fields["y"]) == ("max", 4, 5, 7, 9)
    assert fields["values"][0, 0] == -1
    assert np.isnan(fields["values"][0, 1])
    assert fields["values"][0, 2] == 0
    # Half a code of 1 / 1023 octave.
    assert fields["values"][1] == pytest.approx([0.25, 1, 2.0**-64], rel=3.5e-4)
    fields, rest = inputs.frame(rest)
    assert (fields["reduce"], fields["flags"], fields["codes"], rest) == ("mean", 3, None, b"")
