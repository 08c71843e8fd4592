# SPDX-License-Identifier: Apache-2.0
"""`fovea map --head mean` and `--head max`: reductions over all heads, compared with the formula."""

import csv
import json
import math
import unittest

from attend_problem import BATCH, DIM, HEADS, KV_LEN, Q_LEN, problem
from map_problem import MapTest, as_it_is, row_weights
from tensor_files import Array


def over_heads(how, numbers):
    """Returns the mean or maximum over the heads that have a value."""
    return math.fsum(numbers) / len(numbers) if how == "mean" else max(numbers)


class HeadsTest(MapTest):
    """Maps of a problem in which each head has its own mask."""

    def setUp(self):
        super().setUp()
        self.arrays = problem()
        # Query 0 is fully masked in head 2, query 3 in all heads; keys 0 and 1 are masked for queries 1 and 2.
        hidden = [[i == 3 or (h == 2 and i == 0) or (i in (1, 2) and j < 2) or (h + i + j) % 4 == 0
                   for j in range(KV_LEN)] for h in range(HEADS) for i in range(Q_LEN)]
        self.visible = [[not cell for cell in row] for row in hidden]
        mask = Array((HEADS, Q_LEN, KV_LEN), [cell for row in self.visible for cell in row], "bool")
        self.options = ["--input", self.input_file(self.arrays), "--mask", self.write_array("mask.npy", mask),
                        "--batch", "1"]

    def sees(self, _, h, i, j):
        return self.visible[h * Q_LEN + i][j]

    def weights(self, h, i):
        return row_weights(self.arrays, 1, h, i, self.sees, as_it_is)

    def check_cells(self, cells, how, reduce, rows, cols, queries, keys):
        cut = [[first + k * (end - first) // n for k in range(n + 1)] for n, (first, end) in
               ((rows, queries), (cols, keys))]
        self.assertEqual(cells.shape, (rows, cols))
        for r in range(rows):
            for c in range(cols):
                of_heads = []
                for h in range(HEADS):
                    seen = [self.weights(h, i)[j] for i in range(cut[0][r], cut[0][r + 1])
                            for j in range(cut[1][c], cut[1][c + 1]) if self.sees(1, h, i, j)]
                    if reduce == "mean":
                        of_heads += [math.fsum(seen) / len(seen)] if seen else []
                    else:
                        of_heads.append(math.fsum(seen) if reduce == "sum" else max(seen, default=0))
                right = over_heads(how, of_heads) if of_heads else math.nan
                got = cells.at(r, c)
                same = math.isnan(got) if math.isnan(right) else abs(got - right) < 2e-6
                self.assertTrue(same, (how, reduce, r, c, got, right))

    def test_maps(self):
        for how in ("mean", "max"):
            for reduce in ("sum", "mean", "max"):
                told = [*self.options, "--head", how, "--reduce", reduce]
                self.check_cells(self.cells(*told), how, reduce, Q_LEN, KV_LEN, (0, Q_LEN), (0, KV_LEN))
                self.check_cells(self.cells(*told, "--rows", "1:5", "--cols", "1:6", "--size", "3x2"),
                                 how, reduce, 2, 3, (1, 5), (1, 6))

    def test_float64_and_threads(self):
        for dtype in ("f64", "f32"):
            told = [*self.options, "--head", "mean", "--dtype", dtype]
            whole = self.cells(*told)
            self.check_cells(whole, "mean", "mean", Q_LEN, KV_LEN, (0, Q_LEN), (0, KV_LEN))
            again = self.cells(*told, "--threads", "1")
            self.assertEqual(list(map(repr, again.values)), list(map(repr, whole.values)))

    def test_statistics(self):
        path = self.dir / "s.json"
        for how in ("mean", "max"):
            self.succeed("map", *self.options, "--head", how, "--stats", str(path))
            told = json.loads(path.read_text())
            self.assertEqual(told["head"], how)
            for i, row in enumerate(told["rows"]):
                each = [self.weights(h, i) for h in range(HEADS)]
                each = [weights for weights in each if weights]
                self.assertEqual(len(each), {0: 3, 3: 0}.get(i, 4))
                if not each:
                    self.assertEqual((row["entropy"], row["effective_keys"], row["maximum"], row["maximum_key"],
                                      row["mean_distance"], row["first_key"]), (0, 0, 0, None, None, 0))
                    continue
                means = [sum(w * (i + 2 - j) for j, w in weights.items()) for weights in each]
                right = {
                    "entropy": [-sum(w * math.log(w) for w in weights.values()) for weights in each],
                    "maximum": [max(weights.values()) for weights in each],
                    "mean_distance": means,
                    "distance_variance": [sum(w * (i + 2 - j - mean) ** 2 for j, w in weights.items())
                                          for weights, mean in zip(each, means)],
                    "first_key": [weights.get(0, 0.0) for weights in each],
                }
                for name, numbers in right.items():
                    expected = over_heads(how, numbers)
                    self.assertAlmostEqual(row[name], expected, delta=2e-5 * max(1, expected), msg=(how, i, name))
                self.assertAlmostEqual(row["effective_keys"], math.exp(row["entropy"]), delta=1e-5)
                best = max(each, key=lambda weights: max(weights.values()))
                self.assertEqual(row["maximum_key"], max(best, key=best.get) if how == "max" else None)

    def test_reductions_of_a_single_head(self):
        arrays = self.square()
        for how in ("mean", "max"):
            self.assertEqual(self.cells(*self.qk(arrays), "--reduce", "sum", "--head", how).values,
                             self.cells(*self.qk(arrays), "--reduce", "sum").values)
        self.assertEqual(self.cells(*self.options, "--reduce", "sum", "--head", "max", "--head", "1").values,
                         self.cells(*self.options, "--reduce", "sum", "--head", "1").values)

    def test_nan_propagates_from_one_head(self):
        self.arrays["query"].values[(1 * HEADS + 1) * Q_LEN * DIM + 4 * DIM] = math.nan
        options = ["--input", self.input_file(self.arrays), "--batch", "1"]
        for how in ("mean", "max"):
            path = self.dir / "s.csv"
            cells = self.cells(*options, "--head", how, "--stats", str(path))
            for i in range(Q_LEN):
                self.assertEqual([math.isnan(cells.at(i, j)) for j in range(KV_LEN)], [i == 4] * KV_LEN)
            row = list(csv.DictReader(path.read_text().splitlines()))[4]
            self.assertEqual((row["entropy"], row["maximum"], row["maximum_key"]), ("nan", "nan", ""))

    def test_images_name_the_head_reduction(self):
        png = self.png(*self.options, "--head", "max", "--reduce", "max")
        self.assertIn(("Description", f"batch item 1 of {BATCH}, the max of {HEADS} heads; queries 0 to 4 of 5, "
                       "keys 0 to 6 of 7"), png.texts)
        for i in range(Q_LEN):
            for j in range(KV_LEN):
                seen = any(self.sees(1, h, i, j) for h in range(HEADS))
                self.assertEqual(png.color(i, j)[3], 255 if seen else 0, (i, j))
        self.assertIn(f"the mean of {HEADS} heads", self.succeed("map", *self.options, "--head", "mean"))


if __name__ == "__main__":
    unittest.main()
