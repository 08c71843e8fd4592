# SPDX-License-Identifier: Apache-2.0
"""Tests of bench/python without measurements: the overhead and the tables."""

import json
import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "peers")]

import cells  # noqa: E402
import overhead  # noqa: E402
import results  # noqa: E402

RUN = {"date": "2026-11-21T10:00:00Z", "cpu": "Some CPU", "cores": 2, "compiler": "GCC 12", "target": "AVX3",
       "commit": "abc1234", "dirty": False, "versions": {"fovea": "0.1"}}  # fmt: skip
CELL = next(cell for cell in cells.every_cell() if cell.name == "full_512_64")


def measured(into, cpp):
    return {"fovea": {"median_us": 200.0},
            "fovea_package": {"median_us": 203.0, "beside_us": {"into": into, "cpp": cpp}}}  # fmt: skip


def kept(record, run=RUN):
    return results.merge({"runs": {}, "results": {}}, run["date"], run, CELL, 1, record)


class Tables(unittest.TestCase):
    def test_overhead_is_the_median_of_differences(self):
        added, share = overhead.of(measured([201.0, 203.0, 290.0], [200.0, 200.0, 200.0]))
        assert added == 3.0
        assert share == 0.015
        assert overhead.of({"fovea_package": {"failed": "no memory"}}) is None

    def test_one_microsecond_and_one_percent_are_allowed(self):
        assert overhead.allowed(measured([202.9], [200.0]))
        assert not overhead.allowed(measured([203.1], [200.0]))
        assert not overhead.allowed({"fovea_package": {"failed": "no memory"}})

    def test_each_target_has_a_table(self):
        both = kept(measured([202.0], [200.0]))
        other = {**RUN, "date": "2026-11-22T10:00:00Z", "target": "AVX2", "cpu": "Another CPU"}
        both = results.merge(both, other["date"], other, CELL, 1, measured([204.0], [200.0]))
        first, second = overhead.page(both).split("\n\n### ")
        assert "### On AVX3\n\nSome CPU" in first
        assert "| full, N=512 D=64 H=8 | 200 | 203 |  |  | 2.00 | 1.0% |" in first
        assert "On AVX2\n\nAnother CPU" in second
        assert "| 4.00 | 2.0% **more** |" in second

    def test_a_failed_package_is_said(self):
        failed = kept({"fovea": {"median_us": 200.0}, "fovea_package": {"failed": "no memory"}})
        assert "| 200 |  |  |  | **not measured** |  |" in overhead.page(failed)
        record = next(iter(failed["results"].values()))
        assert overhead.line(record) == f"{CELL.title()}, threads 1: us per call: fovea 200.00"

    def test_committed_results_have_a_table(self):
        stored = json.loads((HERE.parent / "results" / "python.json").read_text())
        rows = [row for row in overhead.page(stored).splitlines() if row.startswith("| ") and "one call" not in row]
        assert len(rows) == len(stored["results"])


if __name__ == "__main__":
    unittest.main()
