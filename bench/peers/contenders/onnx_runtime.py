# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime's three attention operators, each in a model with one node, in float32 on the CPU."""

import numpy as np

from . import Cannot, Prepared

CONTRIB = "com.microsoft"


def require_forward_in_float32(cell):
    if cell.backward:
        raise Cannot("no gradients of its attention operators")
    if cell.lenses:
        raise Cannot("does not return weights")
    if cell.dtype != "float32":
        raise Cannot("no bfloat16 on CPUs")


class OnnxRuntime:
    def __init__(self, threads):
        import onnxruntime

        self.onnxruntime = onnxruntime
        self.threads = threads

    def versions(self):
        return {"onnxruntime": self.onnxruntime.__version__}

    def prepared(self, node, feeds, outputs, context, how, *, opset):
        """Prepares a session with one node. `feeds` holds (name, array) pairs in the node's order; the array of an
        absent input is None. `context` converts the first output to [1, heads, length, dim]."""
        import onnx
        from onnx import TensorProto, helper

        operator, domain, attributes = node
        given = {name: array for name, array in feeds if array is not None}
        inputs = [name if array is not None else "" for name, array in feeds]
        while inputs and not inputs[-1]:
            inputs.pop()
        infos = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in given.items()
        ]
        graph = helper.make_graph(
            [helper.make_node(operator, inputs, outputs, domain=domain, **attributes)],
            operator,
            infos,
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        )
        imports = [helper.make_opsetid("", opset), helper.make_opsetid(CONTRIB, 1)]
        model = helper.make_model(graph, opset_imports=imports)
        model.ir_version = min(model.ir_version, 11)
        options = self.onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        session = self.onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        binding = session.io_binding()
        for name, array in given.items():
            binding.bind_cpu_input(name, array)
        for name in outputs:
            binding.bind_output(name, "cpu")

        def run(repeats):
            for _ in range(repeats):
                session.run_with_iobinding(binding)

        return Prepared(run, lambda: [context(binding.get_outputs()[0].numpy())], how)


def packed(array):
    """Converts [1, heads, length, dim] to the contrib operators' layout [1, length, heads * dim]."""
    _, heads, length, dim = array.shape
    return np.ascontiguousarray(array.transpose(0, 2, 1, 3)).reshape(1, length, heads * dim)


def unpacked(heads):
    return lambda array: array.reshape(1, array.shape[1], heads, -1).transpose(0, 2, 1, 3)


class OrtMultiHeadAttention(OnnxRuntime):
    def prepare(self, problem):
        cell = problem.cell
        require_forward_in_float32(cell)
        if cell.q_heads != cell.kv_heads:
            raise Cannot("requires as many key heads as query heads")
        if cell.score == "softcap":
            raise Cannot("no softcap")
        attributes, bias, lengths, how = {"num_heads": cell.q_heads}, None, None, "native"
        if cell.mask == "causal" and cell.score == "plain":
            attributes["unidirectional"] = 1
        elif cell.mask == "padding" and cell.score == "plain":
            lengths = (np.arange(cell.length)[None] < cell.keys).astype(np.int32)
        elif (bias := problem.additive_mask()) is not None:
            how = "native" if cell.score == "bias" and cell.mask == "full" else "mask tensor"
        feeds = [
            ("query", packed(problem.query)),
            ("key", packed(problem.key)),
            ("value", packed(problem.value)),
            ("bias", None),
            ("key_padding_mask", lengths),
            ("attention_bias", bias),
        ]
        node = ("MultiHeadAttention", CONTRIB, attributes)
        return self.prepared(node, feeds, ["context"], unpacked(cell.q_heads), how, opset=21)


class OrtGroupQueryAttention(OnnxRuntime):
    def prepare(self, problem):
        cell = problem.cell
        require_forward_in_float32(cell)
        if cell.mask not in ("causal", "window"):
            raise Cannot("always causal, and earlier keys must come from its own cache")
        if cell.score != "plain" or cell.key_dim != cell.value_dim:
            raise Cannot("nothing but causal and window is measured with it")
        attributes = {"num_heads": cell.q_heads, "kv_num_heads": cell.kv_heads}
        if cell.mask == "window":
            attributes["local_window_size"] = cell.window + 1
        feeds = [
            ("query", packed(problem.query)),
            ("key", packed(problem.key)),
            ("value", packed(problem.value)),
            ("past_key", None),
            ("past_value", None),
            ("seqlens_k", np.array([cell.length - 1], np.int32)),
            ("total_sequence_length", np.array(cell.length, np.int32)),
        ]
        node = ("GroupQueryAttention", CONTRIB, attributes)
        outputs = ["context", "present_key", "present_value"]
        return self.prepared(node, feeds, outputs, unpacked(cell.q_heads), "native", opset=21)


class OrtAttention(OnnxRuntime):
    def prepare(self, problem):
        cell = problem.cell
        require_forward_in_float32(cell)
        attributes, mask, lengths, how = {}, None, None, "native"
        if cell.mask == "causal" and cell.score == "plain":
            attributes["is_causal"] = 1
        elif cell.mask == "padding" and cell.score == "plain":
            lengths = np.array([cell.keys], np.int64)
        elif (mask := problem.additive_mask()) is not None:
            how = "native" if cell.score == "bias" and cell.mask == "full" else "mask tensor"
        if cell.score == "softcap":
            attributes["softcap"] = cell.softcap
        feeds = [
            ("Q", problem.query),
            ("K", problem.key),
            ("V", problem.value),
            ("attn_mask", mask),
            ("past_key", None),
            ("past_value", None),
            ("nonpad_kv_seqlen", lengths),
        ]
        node = ("Attention", "", attributes)
        # nonpad_kv_seqlen requires opset 24.
        opset = 23 if lengths is None else 24
        return self.prepared(node, feeds, ["context"], lambda context: context, how, opset=opset)
