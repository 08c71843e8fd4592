# SPDX-License-Identifier: Apache-2.0
"""Creates build/python/venv from python/requirements.txt, if it is missing or outdated (tools/python.sh)."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench" / "peers"))

import environment  # noqa: E402  (bench/peers/environment.py)

environment.make_venv(
    ROOT / "build" / "python" / "venv",
    ROOT / "python" / "requirements.txt",
    "330 MB, once",
    "this requires the network (or PIP_FIND_LINKS) once; FOVEA_PYTHON=0 skips the Python package",
    lambda line: print(line, flush=True),
)
