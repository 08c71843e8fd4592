# SPDX-License-Identifier: Apache-2.0
"""`python -m fovea`: the command line that the package carries, in place of this process, so that exit
status, signals and standard input are its own."""

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
