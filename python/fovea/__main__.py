# SPDX-License-Identifier: Apache-2.0
"""`python -m fovea`: replaces this process with the command line included in the package, so that exit status,
signals and standard input are handled by it."""

import os
import pathlib
import sys


def main() -> None:
    program = pathlib.Path(__file__).parent / "bin" / "fovea"
    try:
        os.execv(program, ["fovea", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"python -m fovea: {program}: {error.strerror}")


if __name__ == "__main__":
    main()
