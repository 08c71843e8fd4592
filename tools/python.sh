#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tools/python.sh: makes build/python/venv, which the Python package is built and tested with, unless it is
# there. Exit status 3, after a line that says why, where there is to be no package: FOVEA_PYTHON=0, or no
# Python of 3.11 or newer (PYTHON names another than python3). Anything else that is missing is an error.

set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
if [ "${FOVEA_PYTHON:-1}" = 0 ]; then
  echo "FOVEA_PYTHON=0: without the Python package and its tests"
  exit 3
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  version=$("$python" --version 2>/dev/null || echo "no $python")
  echo "No Python package, and none of its tests: it needs Python 3.11 or newer, here is $version (PYTHON=... names another)"
  exit 3
fi
exec "$python" -B tools/python_venv.py
