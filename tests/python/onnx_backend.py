# SPDX-License-Identifier: Apache-2.0
"""An ONNX backend on Fovea, for models with one node: Attention (opsets 23 and 24), or FlexAttention without
subgraphs.

The engine computes Y. The scores and weights of qk_matmul_output, which the engine never stores, come from the
steps of the reference.
"""

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep

import fovea

OPERATORS = {("", "Attention"), ("ai.onnx.preview", "FlexAttention")}
KNOWN = {"is_causal", "kv_num_heads", "q_num_heads", "qk_matmul_output_mode", "scale", "softcap"}
KNOWN_INPUTS = ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
KNOWN_OUTPUTS = ("Y", "present_key", "present_value", "qk_matmul_output")

# For each qk_matmul_output_mode, the steps up to it. The output is the last of them that the problem has.
STEPS = (
    ("scores", "scaled_scores"),
    ("scores", "scaled_scores", "softcapped_scores"),
    ("scores", "scaled_scores", "softcapped_scores", "biased_scores", "masked_scores"),
    ("weights",),
)


def with_heads(array, heads):
    """Returns [batch, length, heads * dim] as [batch, heads, length, dim], without a copy."""
    if array.ndim == 4:
        return array
    batch, length, width = array.shape
    return array.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)


def as_wide_as_keys(mask, kv_len):
    """Pads a mask that is narrower than the keys; the remaining keys are masked."""
    missing = [(0, 0)] * (mask.ndim - 1) + [(0, kv_len - mask.shape[-1])]
    return np.pad(mask, missing, constant_values=False if mask.dtype == bool else -np.inf)


class Node(BackendRep):
    """The result of Backend.prepare."""

    def __init__(self, model):
        (node,) = model.graph.node
        self.attributes = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
        self.graph_inputs = [one.name for one in model.graph.input]
        self.graph_outputs = [one.name for one in model.graph.output]
        # Maps the operator's input names to the graph's, and the graph's output names to the operator's.
        self.inputs = {own: name for own, name in zip(KNOWN_INPUTS, node.input, strict=False) if name}
        self.outputs = {name: own for own, name in zip(KNOWN_OUTPUTS, node.output, strict=False) if name}

    def run(self, inputs, **_):
        by_name = dict(zip(self.graph_inputs, inputs, strict=True))
        results = self.attend({own: by_name[name] for own, name in self.inputs.items()})
        return tuple(results[self.outputs[name]] for name in self.graph_outputs)

    def attend(self, given):
        q_heads = self.attributes.get("q_num_heads")
        query = with_heads(given["Q"], q_heads)
        key, value = (self.after_the_past(given, name, past) for name, past in (("K", "past_key"), ("V", "past_value")))
        options = self.options(given, key.shape[2])
        # The operator's output layout: if inputs have three dimensions, the heads of a row are adjacent.
        batch, heads, q_len, _ = query.shape
        three = given["Q"].ndim == 3
        width = value.shape[3]
        y = np.empty((batch, q_len, heads * width) if three else (batch, heads, q_len, width), query.dtype)
        fovea.attention(query, key, value, out=with_heads(y, heads), **options)
        results = {"Y": y, "present_key": key, "present_value": value}
        if "qk_matmul_output" in self.outputs.values():
            steps = fovea.reference.attention_steps(query, key, value, **options)
            names = STEPS[self.attributes.get("qk_matmul_output_mode", 0)]
            reached = [step for step in (getattr(steps, name) for name in names) if step is not None]
            results["qk_matmul_output"] = reached[-1].astype(query.dtype)
        return results

    def after_the_past(self, given, name, past):
        new = with_heads(given[name], self.attributes.get("kv_num_heads"))
        return np.concatenate((given[past], new), axis=2) if past in given else new

    def options(self, given, kv_len):
        # Causal is top-left aligned, starting at the end of the past keys.
        options = {"alignment": given["past_key"].shape[2] if "past_key" in given else 0}
        mask = None
        if "attn_mask" in given:
            wide = as_wide_as_keys(given["attn_mask"], kv_len)
            if wide.dtype == bool:
                mask = fovea.dense(wide)
            else:
                options["bias"] = wide
        if "nonpad_kv_seqlen" in given:
            real = fovea.key_lengths(given["nonpad_kv_seqlen"])
            mask = real if mask is None else mask & real
        if self.attributes.get("is_causal", 0):
            mask = fovea.causal() if mask is None else mask & fovea.causal()
        options |= {name: self.attributes[name] for name in ("scale", "softcap") if self.attributes.get(name)}
        return options if mask is None else options | {"mask": mask}


class FoveaBackend(Backend):
    @classmethod
    def is_compatible(cls, model, device="CPU", **_):
        (node, *others) = model.graph.node
        return (
            cls.supports_device(device)
            and not others
            and (node.domain, node.op_type) in OPERATORS
            and {one.name for one in node.attribute} <= KNOWN
        )

    @classmethod
    def prepare(cls, model, device="CPU", **options):
        super().prepare(model, device, **options)
        if not cls.is_compatible(model, device):
            raise NotImplementedError("expected one node of Attention, or of FlexAttention without graphs, on the CPU")
        return Node(model)

    @classmethod
    def supports_device(cls, device):
        return device == "CPU"
