# SPDX-License-Identifier: Apache-2.0
"""Makes build/python/venv as python/requirements.txt says, unless it is there (tools/python.sh)."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench" / "peers"))

import environment  # noqa: E402  (bench/peers/environment.py)

environment.make_venv(
    ROOT / "build" / "python" / "venv",
    ROOT / "python" / "requirements.txt",
    "330 MB, once",
    "that needs the network (or PIP_FIND_LINKS) this once; FOVEA_PYTHON=0 goes without the Python package",
    lambda line: print(line, flush=True),
)
