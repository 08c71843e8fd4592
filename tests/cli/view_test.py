# SPDX-License-Identifier: Apache-2.0
"""`fovea view`: its pages, the responses of every route, and its inputs."""

import base64
import concurrent.futures
import hashlib
import json
import os
import re
import struct
import time
import unittest
import urllib.parse

import recordings
from map_problem import Png
from support import SOURCE, TIMEOUT_S, scene
from tensor_files import Array, npz_of, read_arrays
from viewer import DIM, HEADS, KEYS, QUERIES, ViewTest

SCENES = sorted((SOURCE / "examples" / "scenes").glob("*.json"))


class PagesTest(ViewTest):
    def test_start_page_and_its_assets(self):
        server = self.start()
        status, fields, page = server.ask("/", token=False)
        self.assertEqual((status, fields["Content-Type"]), (200, "text/html; charset=utf-8"))
        self.assertEqual(fields["Cache-Control"], "no-store")
        names = re.findall(rb'(?:src|href)="(/assets/[^"]+)"', page)
        self.assertEqual(len(names), 3)
        total = len(page)
        for name in set(names):
            status, fields, asset = server.ask(name.decode(), token=False)
            self.assertEqual(status, 200)
            self.assertEqual(fields["Cache-Control"], "private, max-age=31536000, immutable")
            total += len(asset)
        self.assertLess(total, 250 << 10)
        self.assertNotIn(b"<script>", page)
        self.assertEqual(server.ask("/healthz", token=False)[2], b"ok\n")
        self.assertEqual(server.ask("/assets/view-0000000000000000.js", token=False)[0], 404)

    def test_every_page_is_the_same(self):
        server = self.start()
        page = server.ask("/", token=False)[2]
        for path in ("/scene/a", "/heads/a", "/map/a/0.1", "/text/a/cross-3-b1.2", "/compare/a/0.1/b/1.1"):
            self.assertEqual(server.ask(path, token=False)[2], page, path)
        for path in ("/map/a", "/map/a/1", "/map/a/0.1/", "/maps/a/0.1", "/index.html", "/api", "/api/v2/inputs"):
            self.refused(server.ask(path), 404, "not_found")

    def test_embedded_scenes(self):
        server = self.start()
        listed = server.get("/api/v1/inputs")
        self.assertIs(listed["embed"], False)
        self.assertEqual(listed["memory"], 1 << 30)
        titles = [json.loads(path.read_text(encoding="utf-8"))["title"] for path in SCENES]
        self.assertEqual([entry["name"] for entry in listed["inputs"]], titles)
        policy = server.ask("/", token=False)[1]["Content-Security-Policy"]
        for entry, path in zip(listed["inputs"], SCENES):
            self.assertEqual((entry["kind"], entry["path"], entry["layers"], entry["changed"]), ("scene", "", [], None))
            status, fields, page = server.ask(f"/api/v1/scenes/{entry['id']}")
            self.assertEqual((status, fields["Content-Type"]), (200, "text/html; charset=utf-8"))
            self.assertEqual(entry["bytes"], path.stat().st_size)
            # The frame of a scene has the policy of its page, which must allow its script.
            (script,) = re.findall(rb"<script>(.*?)</script>", page, re.DOTALL)
            hashed = base64.b64encode(hashlib.sha256(script).digest()).decode()
            self.assertIn(f"'sha256-{hashed}'", policy)

    def test_scene_of_a_file_is_the_page_of_explain(self):
        path = self.write("a b.json", scene(title="<b>Mine</b>"))
        server = self.start(path)
        entry, _ = self.input_of(server)
        self.assertEqual((entry["name"], entry["path"], entry["title"]), ("a b.json", path, "<b>Mine</b>"))
        self.assertEqual(entry["source"], " ".join(json.loads(scene())["tokens"]))
        self.assertEqual(entry["id"], f"a-b-{entry['fingerprint'][:8]}")
        self.assertEqual(server.ask(f"/api/v1/scenes/{entry['id']}")[2].decode(),
                         self.succeed("explain", path, "--format", "html"))

    def test_fields_of_every_response(self):
        server = self.start()
        for path, token in (("/", False), ("/nothing", False), ("/api/v1/inputs", True), ("/api/v1/inputs", False)):
            fields = server.ask(path, token=token)[1]
            self.assertIn("default-src 'none'; script-src 'self' 'sha256-", fields["Content-Security-Policy"])
            self.assertIn("frame-ancestors 'none'", fields["Content-Security-Policy"])
            self.assertEqual((fields["X-Content-Type-Options"], fields["Referrer-Policy"],
                              fields["Cross-Origin-Resource-Policy"]), ("nosniff", "no-referrer", "same-origin"))
            self.assertIsNone(fields["Access-Control-Allow-Origin"])
            self.assertIsNone(fields["Set-Cookie"])

    def test_embed(self):
        server = self.start("--embed", "http://localhost:*", "--embed", "https://lab.example")
        self.assertIn("frame-ancestors http://localhost:* https://lab.example",
                      server.ask("/", token=False)[1]["Content-Security-Policy"])
        self.assertIs(server.get("/api/v1/inputs")["embed"], True)
        for origin in ("*", "localhost", "http://", "http://a b", "http://a;script-src", "http://a:99x"):
            self.assertIn("--embed: expected an origin", self.fail_with(2, "view", "--no-open", "--embed", origin))


class RoutesTest(ViewTest):
    def test_tensors(self):
        tokens = self.write("words.txt", "".join(f"w{i}\n" for i in range(KEYS)))
        server = self.start(self.tensors(), "--causal", "--scale", "0.5", "--tokens", tokens, "--memory", "64M")
        entry, path = self.input_of(server)
        self.assertEqual(server.get(path), entry)
        self.assertEqual((entry["kind"], entry["name"], entry["bytes"]),
                         ("tensors", "layer.npz", os.path.getsize(entry["path"])))
        (layer,) = entry["layers"]
        self.assertEqual(layer, {
            "label": "0", "layer": 0, "kind": "self", "batch": 0, "name": "attention", "heads": [0, 1],
            "queries": QUERIES, "keys": KEYS, "head_dim": DIM, "dtype": "float32", "mask": "causal",
            "score": "scale 0.5", "query_tokens": False, "key_tokens": True, "values": False, "same_tokens": False})
        self.assertEqual(server.get("/api/v1/inputs")["memory"], 64 << 20)

    def test_scores_have_ids_of_their_own(self):
        ids = {self.input_of(self.start(self.tensors(), *options))[0]["fingerprint"]
               for options in ((), ("--scale", "0"), ("--scale", "0.5"))}
        self.assertEqual(len(ids), 3)

    def test_layers_of_a_file_and_batches(self):
        arrays = {f"layers.{layer}.{name}": Array.normal((2, 2, 5, 4), layer)
                  for layer in (3, 11) for name in ("query", "key")}
        server = self.start(self.write("all.npz", npz_of(arrays)))
        entry, path = self.input_of(server)
        self.assertEqual([layer["label"] for layer in entry["layers"]], ["3-b0", "3-b1", "11-b0", "11-b1"])
        self.assertEqual(server.get(f"{path}/11-b1.1")["head"], "11-b1.1")

    def test_numbers_of_a_head(self):
        data = self.tensors()
        server = self.start(data, "--causal")
        _, path = self.input_of(server)
        out = str(self.dir / "tile.npy")
        self.succeed("tile", "--input", data, "--causal", "--head", "1", "--output", out)
        weights = read_arrays(self.dir / "tile.npy")[""]
        offset = KEYS - QUERIES
        for query, key in ((299, 7), (150, 110), (150, 111), (40, 0), (0, 0)):
            cell = server.get(f"{path}/0.1/cell?query={query}&key={key}")
            self.assertEqual((cell["query"], cell["key"], cell["hidden"]), (query, key, key > query + offset))
            self.assertEqual(cell["weight"], weights.at(query, key))
            self.assertEqual(cell["score"] == "-inf", cell["hidden"])
        row = server.get(f"{path}/0.1/row?query=250&top=4")
        expected = sorted(((weights.at(250, key), -key) for key in range(KEYS)), reverse=True)[:4]
        self.assertEqual([(top["weight"], -top["key"]) for top in row["top"]], expected)
        self.assertEqual((row["visible"], row["maximum_key"]), (250 + offset + 1, -expected[0][1]))
        self.assertEqual(sum(row["powers"]), row["visible"])
        column = server.get(f"{path}/0.1/column?key=9&top=3")
        expected = sorted(((weights.at(query, 9), -query) for query in range(QUERIES)), reverse=True)[:3]
        self.assertEqual([(top["weight"], -top["query"]) for top in column["top"]], expected)
        self.assertAlmostEqual(column["sum"], sum(weights.at(query, 9) for query in range(QUERIES)), places=4)
        status, fields, body = server.ask(f"{path}/0.1/weights?query=100,200&range=10:90")
        self.assertEqual((status, fields["Content-Type"]), (200, "application/octet-stream"))
        means = struct.unpack("<80f", body)
        self.assertEqual(means[-1], (0 + weights.at(200, 89)) / 2)
        self.assertEqual(server.ask(f"{path}/0.1/weights?query=10&range=200:202")[2], struct.pack("<2f", -1, -1))
        (of_key,) = struct.unpack("<f", server.ask(f"{path}/0.1/weights?key=9&range=250:251")[2])
        self.assertEqual(of_key, weights.at(250, 9))

    def test_tiles_and_their_tags(self):
        server = self.start(self.tensors())
        _, path = self.input_of(server)
        status = server.get(f"{path}/0.0")
        self.assertEqual((status["queries"], status["keys"], status["levels"], status["tile_side"]),
                         (QUERIES, KEYS, 2, 256))
        code, fields, frame = server.ask(f"{path}/0.0/tile/max/0/1/1")
        self.assertEqual((code, fields["Cache-Control"]), (200, "private, max-age=31536000, immutable"))
        size, magic, form, reduce, level, flags, x, y, columns, rows = struct.unpack("<I4s4BIIHH", frame[:24])
        self.assertEqual((size, magic, form, reduce, level, flags, x, y, columns, rows),
                         (len(frame) - 4, b"FVT1", 1, 1, 0, 0, 1, 1, KEYS - 256, QUERIES - 256))
        tag = fields["ETag"]
        code, fields, body = server.ask(f"{path}/0.0/tile/max/0/1/1", If_None_Match=tag)
        self.assertEqual((code, fields["ETag"], body), (304, tag, b""))
        self.assertEqual(server.ask(f"{path}/0.0/tile/max/0/0/1", If_None_Match=tag)[0], 200)
        tags = {server.ask(f"{path}/{place}")[1]["ETag"]
                for place in ("0.0/tile/max/0/0/0", "0.1/tile/max/0/0/0", "0.0/tile/mean/0/0/0", "0.0/tile/max/1/0/0")}
        self.assertEqual(len(tags), 4)
        for bad in ("max/0/2/0", "max/9/0/0", "sum/0/0/0", "max/x/0/0", "max/-1/0/0", "max/0/0/99999999999999999999"):
            self.assertEqual(server.ask(f"{path}/0.0/tile/{bad}")[0], 400, bad)
        counters = server.get("/api/v1/counters")
        self.assertGreaterEqual(counters["tiles"]["computed"], 4)

    def test_means_exist_below_the_stored_levels(self):
        server = self.start(self.tensors(queries=2100, keys=2100))
        _, path = self.input_of(server)
        status = server.get(f"{path}/0.0")
        self.assertLess(status["mean_levels"], status["levels"])
        self.assertEqual(server.ask(f"{path}/0.0/tile/mean/{status['mean_levels'] - 1}/0/0")[0], 200)
        for level in range(status["mean_levels"], status["levels"]):
            self.refused(server.ask(f"{path}/0.0/tile/mean/{level}/0/0"), 400, "malformed", "level")

    def test_pass(self):
        server = self.start(self.tensors())
        _, path = self.input_of(server)
        code, _, body = server.ask(f"{path}/0.0/pass", method="POST", body=b'{"rows": "100:200"}')
        self.assertEqual(code, 202)
        self.assertEqual(json.loads(body)["pass"]["total"], 1)
        deadline = time.monotonic() + TIMEOUT_S
        while server.get(f"{path}/0.0")["pass"]["state"] != "done":
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        self.assertEqual(server.ask(f"{path}/0.0/pass", method="DELETE")[0], 202)
        for body in (b"{", b"[]", b'{"row": "0:1"}', b'{"rows": "1:0"}', b'{"rows": 3}', b"\xff"):
            self.assertEqual(server.ask(f"{path}/0.0/pass", method="POST", body=body)[0], 400, body)

    def test_recording(self):
        layers = [recordings.Layer(i, i + 1) for i in range(2)] + [recordings.Layer(1, 9, name="x", kind="cross",
                                                                                   heads=[2, 5])]
        path = self.write("run.safetensors", recordings.recording_of(layers))
        server = self.start(path)
        entry, start = self.input_of(server)
        self.assertEqual((entry["kind"], entry["model"], entry["source"]), ("recording", "a model", "a text"))
        self.assertEqual([layer["label"] for layer in entry["layers"]], ["0", "1", "cross-1"])
        self.assertEqual(entry["layers"][2]["heads"], [2, 5])
        self.assertTrue(entry["layers"][0]["same_tokens"])
        weights = layers[2].weights(1)
        self.assertAlmostEqual(server.get(f"{start}/cross-1.5/cell?query=8&key=3")["weight"], weights[8][3], places=5)
        self.refused(server.ask(f"{start}/cross-1.3"), 404, "not_found")
        heads = server.get(f"{start}/heads?layer=cross-1")
        self.assertEqual((heads["layer"], [head["head"] for head in heads["heads"]]), ("cross-1", [2, 5]))
        self.assertEqual({len(head["numbers"]) for head in heads["heads"]}, {len(heads["names"])})
        thumbs = server.ask(f"{start}/thumbs?layer=0&reduce=max")[2]
        places = []
        while thumbs:
            size, x, y = struct.unpack("<I8x2I", thumbs[:20])
            places.append((x, y))
            thumbs = thumbs[4 + size:]
        self.assertEqual(places, [(head, 0) for head in range(recordings.HEADS)])

    def test_tokens_and_search(self):
        path = self.write("run.safetensors", recordings.recording_of([recordings.Layer(0, 1)]))
        server = self.start(path)
        _, start = self.input_of(server)
        found = server.get(f"{start}/tokens?layer=0&side=key&range=0:9")
        self.assertEqual(found, {"first": 0, "tokens": recordings.TOKENS})
        self.assertEqual(server.get(f"{start}/tokens?layer=0&range=3:4")["tokens"], recordings.TOKENS[3:4])

        def find(text, **more):
            query = urllib.parse.urlencode({"layer": "0", "side": "key", "text": text, **more})
            answer = server.get(f"{start}/find?{query}")
            return answer["count"], answer["positions"]

        self.assertEqual(find("cat"), (3, [1, 5, 8]))
        self.assertEqual(find(" cat on a c"), (1, [5]))  # across tokens
        self.assertEqual(find("cat", after=1), (3, [5, 8]))
        self.assertEqual(find("CAT"), (0, []))
        self.assertEqual(find("tHe</B", fold=1), (1, [0]))
        self.assertEqual(find("\u202eabc"), (1, [3]))
        self.assertEqual(find("t"), (4, [1, 4, 5, 8]))
        self.refused(server.ask(f"{start}/find?layer=0&text="), 400, "malformed", "text")
        self.refused(server.ask(f"{start}/tokens?layer=7"), 404, "not_found")

    def test_arguments_are_read_strictly(self):
        server = self.start(self.tensors())
        _, path = self.input_of(server)
        for query, argument in (("cell?query=300&key=0", "query"), ("cell?query=0&key=-1", "key"),
                                ("cell?query=0", "key"), ("cell?query=0&key=0&x=1", "x"),
                                ("cell?query=0&query=0&key=0", "query"), ("cell?query=+1&key=0", "query"),
                                ("cell?query=1.0&key=0", "query"), ("cell?query=&key=0", "query"),
                                ("row?query=1&top=65", "top"), ("weights?query=1&key=1", "query"),
                                ("weights?query=1,&range=0:3", "query"), ("weights?query=1&range=3:3", "range"),
                                ("export?format=gif", "format"), ("export?size=0x3", "size"),
                                ("export?rows=0:301", "rows"), ("export?tone=blue", "tone"),
                                ("weights?query=" + ",".join(["1"] * 300), "query")):
            self.refused(server.ask(f"{path}/0.0/{query}"), 400, "malformed", argument)
        self.assertEqual(self.refused(server.ask(f"{path}/0.0/cell?query=300&key=0"), 400, "malformed", "query"),
                         "query: expected 0 to 299, got 300")
        self.refused(server.ask(f"{path}/0.0/cell?query"), 400, "malformed")
        for head in ("0.2", "1.0", "0.", "0.x", "a.b.c"):
            self.refused(server.ask(f"{path}/{head}"), 404, "not_found")
        self.refused(server.ask(f"{path}/tokens?layer=0"), 404, "no_tokens")
        self.refused(server.ask("/api/v1/inputs/none"), 404, "not_found")
        self.refused(server.ask(f"/api/v1/scenes/{path.rsplit('/', 1)[1]}"), 404, "not_found")

    def test_exports_are_the_files_of_map(self):
        path = self.write("run.safetensors", recordings.recording_of([recordings.Layer(0, 1)]))
        server = self.start(path)
        _, start = self.input_of(server)
        options = ["--layer", "0", "--head", "2", "--rows", "1:9", "--cols", "0:8", "--size", "4x8", "--reduce", "max",
                   "--tone", "log", "--colormap", "cividis"]
        query = "rows=1:9&cols=0:8&size=4x8&reduce=max&tone=log&colors=cividis"
        for ending, kind in (("png", "image/png"), ("svg", "image/svg+xml"), ("npy", "application/octet-stream")):
            status, fields, body = server.ask(f"{start}/0.2/export?format={ending}&{query}")
            self.assertEqual((status, fields["Content-Type"]), (200, kind))
            self.assertRegex(fields["Content-Disposition"], rf'^attachment; filename="run-[0-9a-f]{{8}}-0\.2\.{ending}"$')
            self.succeed("map", path, *options, "--output", str(self.dir / f"map.{ending}"))
            expected = (self.dir / f"map.{ending}").read_bytes()
            self.assertEqual(body, expected, ending)
            if ending == "png":
                self.assertEqual((Png(body).width, Png(body).height), (4, 8))
        table = server.ask(f"{start}/0.2/export?format=csv&{query}")[2].decode()
        rows = [line.split(",") for line in table.splitlines()]
        self.assertEqual(rows[0], ["query", "0", "2", "4", "6"])
        self.assertEqual([row[0] for row in rows[1:]], [str(query) for query in range(1, 9)])
        self.assertEqual(rows[1][2:], ["", "", ""])  # hidden
        cells = read_arrays(self.dir / "map.npy")[""]
        self.assertEqual(struct.pack("<f", float(rows[8][2])), struct.pack("<f", cells.at(7, 1)))

    def test_export_limits(self):
        data = self.write("long.npz", npz_of({"query": Array((1, 1, 17000, 1), [0.0] * 17000),
                                              "key": Array((1, 1, 17000, 1), [0.0] * 17000)}))
        server = self.start(data)
        _, path = self.input_of(server)
        self.refused(server.ask(f"{path}/0.0/export?format=png&size=17000x1"), 413, "too_large", "size")
        self.refused(server.ask(f"{path}/0.0/export?format=npy&size=8192x4096"), 413, "too_large", "size")


class InputsTest(ViewTest):
    def test_changed_file(self):
        path = self.tensors()
        server = self.start(path)
        entry, start = self.input_of(server)
        first = server.get(f"{start}/0.0/cell?query=3&key=2")
        os.replace(self.tensors("other.npz", seed=7), path)
        self.assertTrue(server.get(start)["changed"])
        for what in ("0.0", "0.0/cell?query=3&key=2", "0.0/tile/max/0/0/0", "heads?layer=0"):
            self.refused(server.ask(f"{start}/{what}"), 409, "changed")
        fresh = server.get(f"{start}/reopen", method="POST")
        self.assertFalse(fresh["changed"])
        self.assertNotEqual(fresh["id"], entry["id"])
        self.refused(server.ask(start), 404, "not_found")
        cell = server.get(f"/api/v1/inputs/{fresh['id']}/0.0/cell?query=3&key=2")
        self.assertNotEqual(cell["weight"], first["weight"])
        os.unlink(path)
        self.refused(server.ask(f"/api/v1/inputs/{fresh['id']}/reopen", method="POST"), 409, "changed")
        self.assertEqual(server.ask("/")[0], 200)

    def test_requests_that_wait_for_a_replaced_input_are_answered(self):
        def long(name, number):
            heads = Array((1, 4, 20000, 1), [number] * 80000)
            return self.write(name, npz_of({"query": heads, "key": heads}))
        path = long("long.npz", 0.0)
        server = self.start(path)
        _, start = self.input_of(server)
        with concurrent.futures.ThreadPoolExecutor() as threads:
            waiting = [threads.submit(server.ask, f"{start}/{what}")
                       for what in ("heads?layer=0", "thumbs?layer=0")]
            time.sleep(0.05)
            os.replace(long("other.npz", 0.5), path)
            fresh = server.get(f"{start}/reopen", method="POST")
            for one in waiting:
                self.refused(one.result(), 503, "reopened")
        self.assertEqual(server.ask(f"/api/v1/inputs/{fresh['id']}/0.0/cell?query=3&key=2")[0], 200)

    def test_every_file_is_watched(self):
        query, key, value, bias, tokens = (str(self.dir / name) for name in ("q.npz", "k.npz", "v.npz", "bias.npz", "t.txt"))
        for path, extents in ((query, (QUERIES, DIM)), (key, (KEYS, DIM)), (value, (KEYS, DIM)), (bias, (QUERIES, KEYS))):
            self.write(path, npz_of({"x": Array.normal(extents, 1)}))
        self.write(tokens, "word\n" * KEYS)
        server = self.start("--query", query, "--key", key, "--value", value, "--bias", bias, "--tokens", tokens)
        entry, start = self.input_of(server)
        self.assertEqual((entry["path"], entry["changed"]), (query, None))
        for path in (key, value, bias, tokens, query):
            os.utime(path, ns=(1, 1))
            self.assertEqual(server.get(start)["changed"], path)
            message = self.refused(server.ask(f"{start}/0.0/cell?query=3&key=2"), 409, "changed")
            self.assertEqual(message, f"{path} has changed since it was opened")
            start = f"/api/v1/inputs/{server.get(f'{start}/reopen', method='POST')['id']}"
            self.assertIsNone(server.get(start)["changed"])

    def test_wrong_usage(self):
        data = self.tensors()
        for arguments, message in (
                ([data, data], "layer.npz: expected each input once, got its content twice"),
                (["--causal"], "options for masks, scores and tokens go with tensors"),
                ([data, "--memory", "1Q"], '--memory: expected a size such as 512M, got "1Q"'),
                ([data, "--memory", "1K"], "--memory: expected 4194304 bytes or more"),
                ([data, "--tokens", self.write("few.txt", "a\n")], "expected 260 lines, one for each key, got 1"),
                ([self.write("bad.json", "{")], "bad.json: "),
                ([str(self.dir / "absent.npz")], "absent.npz: "),
                ([self.write("none.safetensors", recordings.recording_of([]))],
                 "none.safetensors: expected attentions, got a recording without any"),
                (["--query", "-", "--key", data], "expected files, which can be read again"),
                (["--port", "65536"], "--port: expected a whole number from 0 to 65535")):
            self.assertIn(message, self.fail_with(2, "view", "--no-open", *arguments))


if __name__ == "__main__":
    unittest.main()
