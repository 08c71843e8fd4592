# SPDX-License-Identifier: Apache-2.0
"""Training pairs of texts, and files of such pairs: code shared by make_dates.py and make_numbers.py.

A line is `source<TAB>target<TAB>alignment`. The alignment gives the source characters that each run of target
characters comes from. In `0-4=20-24,5-7=12-17`, the first four target characters come from source characters 20 to 23.
Ranges are half-open and count Unicode code points. Several source ranges may be joined by `+`, and the column may be
omitted.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import pathlib
import random
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

HERE = pathlib.Path(__file__).resolve().parent
Item = TypeVar("Item")


@dataclass(frozen=True, order=True)
class Range:
    """Characters [begin, end) of a text."""

    begin: int
    end: int

    def __str__(self) -> str:
        return f"{self.begin}-{self.end}"


@dataclass(frozen=True)
class Pair:
    """A source, its target, and the source range of each run of target characters."""

    source: str
    target: str
    alignment: dict[Range, Range]

    def line(self) -> str:
        runs = ",".join(f"{run}={place}" for run, place in sorted(self.alignment.items()))
        return "\t".join([self.source, self.target, *([runs] if runs else [])]) + "\n"


def require(package: str) -> None:
    """Exits unless the installed version of the package is the one pinned in requirements.txt."""
    (pin,) = (line for line in (HERE / "requirements.txt").read_text().splitlines() if line.startswith(f"{package}=="))
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        version = "none"
    if pin != f"{package}=={version}":
        sys.exit(f"{sys.argv[0]}: needs {pin}, here is {version}: pip install -r {HERE / 'requirements.txt'}")


def shuffled(items: Iterable[Item], generator: random.Random) -> list[Item]:
    """Returns the items in random order.

    Uses only random(), the one method that Python guarantees to be reproducible across versions.
    """
    return sorted(items, key=lambda _: generator.random())


def main(name: str, description: str | None, make: Callable[[int, int, random.Random], list[Pair]], train: int) -> None:
    """Runs the command line of a script that writes NAME.train.tsv and NAME.test.tsv.

    make(count, test, generator) returns `count` pairs. The first `test` of them are the test set, whose targets must
    not occur in the rest. `train` is the default number of training pairs.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail where a file is not what would be written"
    )
    parser.add_argument(
        "--output",
        type=pathlib.Path,
        default=HERE / "data",
        metavar="DIR",
        help="the files' folder (default: data, beside this script)",
    )
    parser.add_argument("--train", type=int, default=train, metavar="N", help="pairs to learn from (%(default)s)")
    parser.add_argument("--test", type=int, default=1000, metavar="N", help="pairs held out (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of all that is drawn (%(default)s)")
    arguments = parser.parse_args()
    if min(arguments.train, arguments.test) < 1:
        parser.error("--train and --test take 1 or more")

    try:
        pairs = make(arguments.train + arguments.test, arguments.test, random.Random(arguments.seed))
        files = {"test": pairs[: arguments.test], "train": pairs[arguments.test :]}
        texts = {
            arguments.output / f"{name}.{part}.tsv": "".join(pair.line() for pair in kept)
            for part, kept in files.items()
        }
        (check if arguments.check else write)(texts)
    except (ValueError, OSError) as error:
        sys.exit(f"{parser.prog}: {error}")


def check(texts: dict[pathlib.Path, str]) -> None:
    """Raises ValueError, naming the first differing line, unless the files have these texts."""
    for path, text in texts.items():
        found, expected = (whole.split("\n") for whole in (path.read_bytes().decode(), text))
        for number, (here, there) in enumerate(zip([*found, None], [*expected, None], strict=False), start=1):
            if here != there:
                raise ValueError(f"{path}:{number}: not what would be written: {here!r} instead of {there!r}")
        print(f"{path}: as it would be written")


def write(texts: dict[pathlib.Path, str]) -> None:
    """Writes each file atomically, so that a reader or an interrupted run leaves the old file or the new one."""
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(path.name + ".new")
        beside.write_bytes(text.encode())
        os.replace(beside, path)
        print(f"{path}: {text.count(chr(10))} pairs, {len(text.encode()):,} bytes")
