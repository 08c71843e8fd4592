# SPDX-License-Identifier: Apache-2.0
"""The node tests of ONNX's Attention and FlexAttention, as the package onnx has them, with its own
tolerances. Each case is checked twice: the engine's context, and the reference's. Outputs that the
engine does not have, the scores and weights of Attention, are the reference's steps.

tests/peers/run runs it in its virtual environment, with the path of engine_call.cc's library.
"""

import pathlib
import sys

import numpy as np
import onnx
from onnx.backend.test.loader import load_model_tests

import engine
import suite

# What the pinned version has. Fewer would mean that the suite was not found.
CASES = {"test_attention_": 64, "test_flexattention": 11}

# qk_matmul_output_mode
STEPS = ("scaled_scores", "softcapped_scores", "masked_scores", "weights")


def cases(prefix):
    """Without the *_expanded ones, which are graphs of other operators."""
    found = [case for case in load_model_tests(kind="node")
             if case.name.startswith(prefix) and "_expanded" not in case.name]
    if len(found) < CASES[prefix]:
        raise SystemExit(f"tests/peers: onnx {onnx.__version__} has {len(found)} cases {prefix}*, "
                         f"and there should be {CASES[prefix]}")
    return sorted(found, key=lambda case: case.name)


def arrays(case, kind, names):
    """{name: array} of the case's inputs or outputs. Left out: those with an empty name."""
    present = [name for name in names if name]
    result = {}
    for i, name in enumerate(present):
        path = pathlib.Path(case.model_dir) / "test_data_set_0" / f"{kind}_{i}.pb"
        result[name] = onnx.numpy_helper.to_array(onnx.load_tensor(str(path)))
    return result


def computable(array):
    """Fovea has no 16-bit types yet."""
    return array.astype(np.float32) if array.dtype == np.float16 else array


def with_heads(array, heads):
    """[batch, length, heads * dim] as [batch, heads, length, dim], without a copy."""
    if array.ndim == 4:
        return array
    batch, length, width = array.shape
    return array.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)


class Case:
    """A case's model of one node, its inputs and what it expects."""

    KNOWN = {"is_causal", "kv_num_heads", "q_num_heads", "qk_matmul_output_mode", "scale", "softcap"}

    def __init__(self, case):
        self.case = case
        self.node, = onnx.load(str(pathlib.Path(case.model_dir) / "model.onnx")).graph.node
        attributes = {one.name: onnx.helper.get_attribute_value(one) for one in self.node.attribute}
        unknown = sorted(set(attributes) - self.KNOWN)
        if unknown:
            raise suite.NotRun(", ".join(unknown) + (
                " is a graph of operators" if unknown[0].endswith("_mod") else " is not understood here"))
        self.attributes = attributes
        self.inputs = arrays(case, "input", self.node.input)
        self.expected = arrays(case, "output", self.node.output)

    def cache(self, name):
        """Key or value, after the past if there is one."""
        incoming = with_heads(self.inputs[name], self.attributes.get("kv_num_heads"))
        past = self.inputs.get({"K": "past_key", "V": "past_value"}[name])
        return incoming if past is None else np.concatenate((past, incoming), axis=2)

    def problem(self):
        keys = computable(self.cache("K"))
        past = self.inputs.get("past_key")
        lengths = self.inputs.get("nonpad_kv_seqlen")
        bias = visible = None
        if "attn_mask" in self.inputs:
            mask = computable(self.inputs["attn_mask"])
            is_bool = mask.dtype == bool
            # A mask may be narrower than the keys, and hides the rest.
            missing = [(0, 0)] * (mask.ndim - 1) + [(0, keys.shape[2] - mask.shape[-1])]
            mask = np.pad(mask, missing, constant_values=False if is_bool else -np.inf)
            bias, visible = (None, mask) if is_bool else (mask, None)
        return engine.Problem(
            query=computable(with_heads(self.inputs["Q"], self.attributes.get("q_num_heads"))),
            key=keys,
            value=computable(self.cache("V")),
            bias=bias,
            visible=visible,
            causal=bool(self.attributes.get("is_causal", 0)),
            # Top-left, from where the past ends.
            offsets=[0 if past is None else past.shape[2]],
            key_lengths=None if lengths is None else list(lengths),
            scale=self.attributes.get("scale"),
            softcap=self.attributes.get("softcap", 0.0),
        )

    def run(self, fovea):
        problem, errors = self.problem(), []

        def check(name, what, got):
            right = self.expected[name]
            error = suite.compare(what, got.astype(right.dtype), right, self.case.rtol, self.case.atol)
            errors.append(f"{what} {error:.1e}")

        # Laid out as the operator's output is: with three dimensions, heads are neighbours.
        y = np.empty(self.expected["Y"].shape, problem.query.dtype)
        fovea.forward(problem, with_heads(y, self.attributes.get("q_num_heads")))
        check("Y", "engine", y)
        reference = np.empty(y.shape)
        with_heads(reference, self.attributes.get("q_num_heads"))[:] = fovea.step(problem, "context")
        check("Y", "reference", reference)
        if "present_key" in self.expected:
            check("present_key", "key cache", self.cache("K"))
            check("present_value", "value cache", self.cache("V"))
        if "qk_matmul_output" in self.expected:
            step = STEPS[self.attributes.get("qk_matmul_output_mode", 0)]
            check("qk_matmul_output", step.replace("_", " "), fovea.step(problem, step))
        return ", ".join(error for error in errors if "cache" not in error)


def main():
    fovea, tally = engine.Engine(sys.argv[1]), suite.Tally()
    print(f"ONNX {onnx.__version__}, node tests of Attention and FlexAttention, with the largest errors:")
    for prefix in CASES:
        for case in cases(prefix):
            tally.run(case.name, lambda case=case: Case(case).run(fovea))
    return tally.close(f"ONNX {onnx.__version__}")


if __name__ == "__main__":
    sys.exit(main())
