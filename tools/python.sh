#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tools/python.sh: creates build/python/venv, the environment for building and testing the Python package, if it is
# missing or outdated. PYTHON selects an interpreter other than python3. Exits with status 3 and a message if the
# package is disabled by FOVEA_PYTHON=0, or if the interpreter is missing or older than 3.11. Any other failure is an
# error.

set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
if [ "${FOVEA_PYTHON:-1}" = 0 ]; then
  echo "FOVEA_PYTHON=0: skipping the Python package and its tests"
  exit 3
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  version=$("$python" --version 2>/dev/null || echo "no $python")
  echo "Skipping the Python package and its tests: expected Python 3.11 or newer, got $version (PYTHON=... selects another)"
  exit 3
fi
exec "$python" -B tools/python_venv.py
