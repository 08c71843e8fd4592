#!python
# SPDX-License-Identifier: Apache-2.0
"""`fovea`: replaces this process with the command line included in the package. A wheel installs this file as the
script `fovea`. An entry point would import the package, and NumPy with it, which takes longer than most commands."""

import importlib.util
import os
import sys

spec = importlib.util.find_spec("fovea")
if spec is None or spec.origin is None:
    sys.exit("fovea: the Python package fovea is not installed here")
program = os.path.join(os.path.dirname(spec.origin), "bin", "fovea")
try:
    os.execv(program, ["fovea", *sys.argv[1:]])
except OSError as error:
    sys.exit(f"fovea: {program}: {error.strerror}")
