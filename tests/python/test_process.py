# SPDX-License-Identifier: Apache-2.0
"""Tests calls in their process: Ctrl-C, threads, forked children."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
from problems import tensors

import fovea

# A call that takes minutes: millions of keys that share a few bytes, because their stride is 0.
LONG = """
import os, signal, sys, threading, time
import numpy as np
import fovea

# SIGINT may be ignored if the tests run in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)

def long_call(function=fovea.attention, queries=20000, keys=2000000, dtype=np.float32, **options):
    query = np.ones((8, queries, 64), dtype)
    key = np.broadcast_to(np.ones((1, 1, 64), dtype), (8, keys, 64))
    return function(query, key, key, **options)

def backward(query, key, value):
    lse = np.zeros(query.shape[:-1], query.dtype)
    return fovea.attention_backward(query, key, value, query, lse, query)

sent = []

def interrupt(after):
    def send():
        time.sleep(after)
        sent.append(time.process_time())  # not of the clock, which includes other processes
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=send, daemon=True).start()
"""


def python(body, timeout=60, **options):
    program = LONG + textwrap.dedent(body)
    return subprocess.run(
        [sys.executable, "-B", "-c", program], capture_output=True, encoding="utf-8", timeout=timeout, **options
    )


CALLS = {
    "attention": "long_call()",
    "on one thread": "long_call(threads=1)",
    "one item": "long_call(queries=100, threads=1)",
    "decode": "long_call(fovea.decode, queries=500)",
    "backward": "long_call(backward, keys=30000)",
    "lenses": "long_call(lenses=fovea.Lenses(statistics=True))",
    "weights": "long_call(lambda query, key, value: fovea.Weights(query, key)[0])",
    "received": "long_call(lambda query, key, value: fovea.Weights(query, key, lse=query[..., 0]).received())",
    "backward in float64": "long_call(backward, queries=2000, keys=15000, dtype=np.float64)",
    "float64": "long_call(keys=5000, dtype=np.float64)",
    "reference": "long_call(fovea.reference.attention, keys=5000)",
    "by PyTorch's signature": "long_call(fovea.scaled_dot_product_attention)",
    "a mask's matrix": "(fovea.causal() | fovea.documents(np.arange(60000))).matrix(60000, 60000)",
    "dropout's matrix": "fovea.Dropout(0.1, seed=1).kept(20000, 20000)",
    "bfloat16": "import ml_dtypes; long_call(dtype=ml_dtypes.bfloat16)",
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_ctrl_c_ends_a_long_call(call):
    result = python(f"""
        fovea.attention(*[np.ones((4, 3), np.float32)] * 3)
        interrupt(0.5)
        try:
            {call}
        except KeyboardInterrupt:
            print("interrupted", time.process_time() - sent[0])
        # The handler is restored, and later calls work.
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        print(fovea.attention(*[np.ones((4, 3), np.float32)] * 3).sum())
    """)
    assert result.returncode == 0, result.stderr
    said, after = result.stdout.splitlines()
    assert said.startswith("interrupted ")
    assert float(said.split()[1]) < 1
    assert float(after) == 12


@pytest.mark.parametrize("call", ["fovea.causal().matrix", "fovea.Dropout(0.1, seed=1).kept"])
def test_a_matrix_is_stored_once(call):
    # A copy would also be made with the GIL, while no other thread runs and Ctrl-C waits.
    result = python(f"""
        import pathlib, re
        def most():
            return 1024 * int(re.search(r"VmHWM:\\s*(\\d+) kB", pathlib.Path("/proc/self/status").read_text())[1])
        before = most()
        matrix = {call}(10000, 8000)
        print((most() - before) / matrix.nbytes)
    """)
    assert result.returncode == 0, result.stderr
    assert 0.5 < float(result.stdout) < 1.5


# Passes of layers that take several seconds, after one on few rows.
PASSES = {
    "forward": "layer.forward(np.ones((1, 200000, 64), np.float32))",
    "backward": "layer.backward(np.ones((1, 30000, 64), np.float32))",
    "weights": "layer.weights()",
}


@pytest.mark.parametrize("call", PASSES.values(), ids=PASSES)
def test_ctrl_c_ends_a_pass(call):
    result = python(f"""
        from fovea import nn
        layer, few = nn.MultiHeadAttention(64, 8), np.ones((1, 4, 64), np.float32)
        expected = layer.forward(few)
        if not {"forward" in call}:
            layer.forward(np.ones((1, 30000 if {"backward" in call} else 3000, 64), np.float32))
        interrupt(0.5)
        try:
            {call}
        except KeyboardInterrupt:
            print("interrupted", time.process_time() - sent[0])
        assert np.array_equal(layer.forward(few), expected)
    """)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("interrupted ")
    assert float(result.stdout.split()[1]) < 1


def test_custom_handlers_do_not_end_a_pass():
    result = python("""
        from fovea import nn
        layer, x = nn.MultiHeadAttention(64, 8), np.ones((1, 6000, 64), np.float32)
        layer.forward(x)
        layer.backward(x)
        expected = {name: gradient.copy() for name, gradient in layer.gradients.items()}
        layer.zero_gradients()
        heard = []
        signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
        interrupt(0.05)
        layer.backward(x)
        while not heard:
            time.sleep(0.01)
        for name, gradient in layer.gradients.items():
            assert np.array_equal(gradient, expected[name]), name
    """)
    assert result.returncode == 0, result.stderr


# Analyses of two layers that take several seconds. The lse is any number, so that writing takes less.
ANALYSES = {
    "diff": "fovea.diff(recording, recording)",
    "rollout": "recording.rollout(-1)",
    "value-weighted attention": "recording[0].value_weighted(0, (1, 1))",
}


@pytest.mark.parametrize("call", ANALYSES.values(), ids=ANALYSES)
def test_ctrl_c_ends_an_analysis(call, tmp_path):
    result = python(f"""
        query, lse = np.ones((1, 2, 30000, 64), np.float32), np.full((1, 2, 30000), 19, np.float32)
        entry = {{"query": query, "key": query[:, :1], "value": query[:, :1], "lse": lse}}
        path = {str(tmp_path / "run.safetensors")!r}
        fovea.Recording.write(path, [entry | {{"name": name}} for name in ("a", "b")])
        recording = fovea.Recording(path)
        interrupt(0.5)
        try:
            {call}
        except KeyboardInterrupt:
            print("interrupted", time.process_time() - sent[0])
    """)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("interrupted ")
    assert float(result.stdout.split()[1]) < 1


def test_ctrl_c_from_outside():
    program = LONG + "print('ready', flush=True)\nlong_call()"
    with subprocess.Popen(
        [sys.executable, "-B", "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout.readline() == b"ready\n"
        time.sleep(0.5)
        child.send_signal(signal.SIGINT)
        begin = time.monotonic()
        try:
            assert child.wait(timeout=10) != 0
        finally:
            child.kill()
        assert time.monotonic() - begin < 1.5
        assert b"KeyboardInterrupt" in child.stderr.read()


def test_custom_handlers():
    result = python("""
        # A handler that raises nothing: the call completes.
        heard = []
        signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
        interrupt(0.1)
        query = np.ones((8, 600, 64), np.float32)
        key = np.broadcast_to(np.ones((1, 1, 64), np.float32), (8, 100000, 64))
        context = fovea.attention(query, key, key)
        assert heard == [signal.SIGINT], heard
        assert np.array_equal(context, query)

        class Enough(Exception):
            pass

        def stop(number, frame):
            raise Enough

        signal.signal(signal.SIGINT, stop)
        interrupt(0.3)
        try:
            long_call()
        except Enough:
            print("enough")
        # An ignored signal has no effect.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        interrupt(0.1)
        assert np.array_equal(fovea.attention(query, key, key), query)
        print("ignored")
    """)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["enough", "ignored"]


def test_default_signal_action():
    result = python("signal.signal(signal.SIGINT, signal.SIG_DFL); interrupt(0.3); long_call()")
    assert result.returncode == -signal.SIGINT


def test_ctrl_c_while_another_thread_computes():
    result = python("""
        threading.Thread(target=long_call, daemon=True).start()
        interrupt(0.5)
        begin = time.monotonic()
        try:
            time.sleep(30)
        except KeyboardInterrupt:
            assert time.monotonic() - begin < 1.5
            print("interrupted", flush=True)
        os._exit(0)
    """)
    assert result.stdout == "interrupted\n", result.stderr


def test_other_threads_run_meanwhile():
    query = np.ones((8, 2000, 64), np.float32)
    key = np.ones((8, 20000, 64), np.float32)
    thread = threading.Thread(target=fovea.attention, args=(query, key, key))
    thread.start()
    turns = 0
    while thread.is_alive():
        turns += 1
        time.sleep(0.001)
    assert turns > 10


def test_many_threads_at_once():
    problems = [tensors((2, 3, 40, 16), seed=seed) for seed in range(8)]
    expected = [fovea.attention(*arrays, mask=fovea.causal()).tobytes() for arrays in problems]
    mask = fovea.causal()
    wrong = []

    def work(number):
        for _ in range(50):
            at = number % len(problems)
            if fovea.attention(*problems[at], mask=mask & fovea.Mask()).tobytes() != expected[at]:
                wrong.append(number)
            with contextlib.suppress(ValueError):
                fovea.attention(*problems[at], scale=float("nan"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_dense_masks_are_released_in_any_thread():
    # The last owner of the array may be a call without the GIL.
    query, key, value = tensors((4, 300, 32))
    for _ in range(20):
        fovea.attention(query, key, value, mask=fovea.dense(np.ones((300, 300), bool)) & fovea.causal())


@pytest.mark.parametrize("warm", [False, True])
def test_forked_child(warm):
    result = python(f"""
        arrays = [np.random.default_rng(1).standard_normal((8, 500, 64)).astype("float32") for _ in range(3)]
        expected = fovea.attention(*arrays) if {warm} else None
        child = os.fork()
        if child == 0:
            found = fovea.attention(*arrays)
            assert expected is None or np.array_equal(found, expected)
            interrupt(0.3)
            try:
                long_call()
            except KeyboardInterrupt:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert expected is None or np.array_equal(fovea.attention(*arrays), expected)
        print("both")
    """)
    assert result.stdout == "both\n", result.stderr


def test_fork_by_multiprocessing():
    result = python("""
        import multiprocessing
        arrays = [np.random.default_rng(1).standard_normal((8, 300, 64)).astype("float32") for _ in range(3)]
        expected = fovea.attention(*arrays)
        with multiprocessing.get_context("fork").Pool(3) as pool:
            for found in pool.starmap(fovea.attention, [arrays] * 6):
                assert np.array_equal(found, expected)
        print("all")
    """)
    assert result.stdout == "all\n", result.stderr


def test_exit_while_a_thread_computes():
    result = python("""
        threading.Thread(target=long_call, daemon=True).start()
        time.sleep(0.3)
        print("end", flush=True)
    """)
    assert result.stdout == "end\n"
    assert result.returncode == 0, result.stderr


def test_masks_at_interpreter_shutdown():
    result = python("""
        kept = fovea.dense(np.ones((3, 3), bool)) & fovea.causal()
        cycle = [kept]
        cycle.append(cycle)
        trace = fovea.explain("a b c")
        weights = trace["weights"]
        del trace
    """)
    assert (result.returncode, result.stderr) == (0, "")


def test_environment():
    environment = {**os.environ, "FOVEA_TARGET": "NONSENSE"}
    result = python("fovea.attention(*[np.ones((2, 2), np.float32)] * 3)", env=environment)
    assert "FOVEA_TARGET" in result.stderr
    environment["FOVEA_TARGET"] = "SCALAR"
    result = python("print(fovea.info().target)", env=environment)
    assert result.stdout == "SCALAR\n", result.stderr
