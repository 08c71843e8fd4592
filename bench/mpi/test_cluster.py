# SPDX-License-Identifier: Apache-2.0
"""Tests of the model and the tables of bench/mpi/simulate, without simulations.

python3 bench/mpi/test_cluster.py
"""

import dataclasses
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import cluster  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAIR = 1.5e-9


def visible(case):
    """Returns the number of pairs that the mask lets through."""
    width = case.window or case.tokens
    return sum(min(query + 1, width) for query in range(case.tokens))


class Model(unittest.TestCase):
    def test_the_steps_of_all_ranks_have_all_pairs(self):
        for ranks in cluster.TREES:
            case = cluster.Case(ranks, 1024, 25, 1)
            self.assertEqual(ranks * sum(pairs for pairs, _ in cluster.steps(case)), visible(case))

    def test_a_window_lacks_only_the_pairs_before_the_first_position(self):
        case = cluster.Case(4, 4096, 25, 1, 512)
        of_a_rank = sum(pairs for pairs, _ in cluster.steps(case))
        self.assertEqual(of_a_rank, case.own * case.window)
        self.assertEqual(4 * of_a_rank - visible(case), case.window * (case.window - 1) // 2)

    def test_the_last_step_sends_nothing(self):
        case = cluster.Case(16, 4096, 25, 1)
        self.assertEqual([keys for _, keys in cluster.steps(case)], [256] * 15 + [0])

    def test_hidden_messages_cost_only_the_fixed_part(self):
        case = cluster.Case(16, 1 << 20, 100, 1)
        expected = cluster.compute_seconds(case, PAIR) + cluster.fixed_seconds(case)
        self.assertAlmostEqual(cluster.model_seconds(case, PAIR) / expected, 1, places=12)
        self.assertLess(cluster.fixed_seconds(case), 1e-3)

    def test_without_computation_messages_take_all_the_time(self):
        case = cluster.Case(16, 1 << 20, 25, 1)
        message = 15 * (2 * case.own * cluster.HEADS * cluster.DIM * 4 / (0.940694 * 25e9 / 8))
        self.assertAlmostEqual(cluster.model_seconds(case, 1e-20) / message, 1, delta=0.01)

    def test_messages_are_hidden_from_the_stated_number_of_tokens_on(self):
        own = cluster.hidden_from(25, PAIR / 32)
        for factor, hidden in ((0.9, False), (1.1, True)):
            case = cluster.Case(64, round(own * factor) * 64, 25, 32)
            pairs, keys = cluster.steps(case)[1]
            compute = pairs * cluster.HEADS * PAIR / case.speed
            self.assertEqual(compute > cluster.message_seconds(case, cluster.message_bytes(case, keys)), hidden)

    def test_waits_end_at_the_next_poll(self):
        self.assertEqual(cluster.polled(-1), 0)
        self.assertAlmostEqual(cluster.polled(7e-6), 10e-6)
        self.assertAlmostEqual(cluster.polled(2.12e-3), 2.15e-3)

    def test_trees_have_a_leaf_for_each_rank(self):
        for ranks in cluster.TREES:
            description = cluster.platform(cluster.Case(ranks, 1024, 25, 1))
            levels, down, up, cables = description.split('topo_parameters="')[1].split('"')[0].split(";")
            extents = [int(one) for one in down.split(",")]
            product = 1
            for extent in extents:
                product *= extent
            self.assertEqual((int(levels), product), (len(extents), ranks))
            self.assertEqual([int(one) for one in up.split(",")][1:], extents[:-1])
            self.assertEqual(set(cables.split(",")), {"1"})


class Saved(unittest.TestCase):
    def setUp(self):
        self.kept = json.loads((ROOT / "bench" / "results" / "simulation.json").read_text(encoding="utf-8"))

    def test_every_case_is_there(self):
        self.assertEqual([cluster.case_of(row) for row in self.kept["rows"]], cluster.cases())

    def test_the_model_agrees_with_the_simulations(self):
        pair = self.kept["rates"][0]["seconds_per_pair"]
        for row in self.kept["rows"]:
            case = cluster.case_of(row)
            model = cluster.model_seconds(case, pair)
            self.assertAlmostEqual(row["model"] / model, 1, places=9, msg=dataclasses.asdict(case))
            self.assertLessEqual(abs(model / row["simulated"] - 1), cluster.ALLOWED, dataclasses.asdict(case))

    def test_the_guide_has_the_tables(self):
        text = (ROOT / "docs" / "distributed.md").read_text(encoding="utf-8")
        begin, end = "<!-- simulation:begin -->\n", "\n<!-- simulation:end -->"
        self.assertEqual(text.split(begin)[1].split(end)[0], cluster.page(self.kept))


if __name__ == "__main__":
    unittest.main()
