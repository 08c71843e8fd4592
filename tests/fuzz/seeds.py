# SPDX-License-Identifier: Apache-2.0
"""seeds.py FOLDER: writes small valid and almost valid files of each format into FOLDER/npy, FOLDER/npz,
FOLDER/safetensors and FOLDER/recording, as the fuzzers' seed corpus. Uses only Python's standard library.
"""

import io
import json
import pathlib
import struct
import sys
import zipfile

TYPES = {"f2": 2, "f4": 4, "f8": 8, "i1": 1, "i2": 2, "i4": 4, "i8": 8, "u1": 1, "u2": 2, "u4": 4,
         "u8": 8, "b1": 1, "V2": 2, "c8": 8, "O": 8}
NAMES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8,
         "U32": 4, "U16": 2, "U8": 1, "BOOL": 1, "F8_E4M3": 1}


def elements(count):
    return bytes(i * 37 % 251 for i in range(count))


def npy(descr="<f4", shape="(2, 3)", size=24, fortran=False, version=1):
    header = f"{{'descr': {descr!r}, 'fortran_order': {fortran}, 'shape': {shape}, }}".encode() + b"\n"
    length = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + length + header + elements(size)


def all_npy():
    for name, size in TYPES.items():
        for order in "<>" if size > 1 else "|":
            yield npy(order + name, "(2, 3)", 6 * size)
    for shape, count in (("()", 1), ("(0,)", 0), ("(3,)", 3), ("(1, 2, 1, 2, 1, 2)", 8),
                         ("(1, 1, 1, 1, 1, 1, 1)", 1), ("(9223372036854775807, 2)", 0)):
        yield npy(shape=shape, size=4 * count)
        yield npy(shape=shape, size=4 * count, fortran=True)
    yield npy(version=2)
    yield npy(version=3)
    yield npy(descr=[("a", "<f4"), ("b", "<i8", (2,))])


def archive(members, method):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as target:
        for name, content in members.items():
            with target.open(name, "w", force_zip64=True) as member:
                member.write(content)
    return file.getvalue()


def all_npz():
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        yield archive({}, method)
        yield archive({"a.npy": npy()}, method)
        yield archive({"a.npy": npy("<V2", "(4,)", 8), "b.npy": npy("|b1", "(8,)", 8)}, method)
        yield archive({"é/x.npy": npy(">i2", "(2,)", 4), "read.me": b"text", "d/": b""}, method)
    yield archive({"a.npy": npy(size=24), "b.npy": npy("<f8", "(64, 64)", 0) + bytes(32768)},
                  zipfile.ZIP_DEFLATED)
    yield archive({"a.npy": npy()}, zipfile.ZIP_BZIP2)


def safetensors(header, size):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + elements(size)


def all_safetensors():
    yield safetensors({}, 0)
    for name, size in NAMES.items():
        yield safetensors({"a": {"dtype": name, "shape": [2, 3], "data_offsets": [0, 6 * size]}}, 6 * size)
    yield safetensors({"__metadata__": {"format": "pt"},
                       "a": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]},
                       "b": {"dtype": "I8", "shape": [3], "data_offsets": [4, 7]},
                       "c": {"dtype": "F64", "shape": [0, 5], "data_offsets": [7, 7]},
                       "ü": {"dtype": "F32", "shape": [1], "data_offsets": [7, 11]}}, 11)


# Options of recordings; the tensors are those of recording_fuzz.cc.
SCORES = [{}, {"scale": 0.5, "softcap": 0}, {"bias": "d"}, {"bias": [[0, "-inf", "nan"]]}, {"alibi": True},
          {"alibi": [0.5, 1]}, {"alibi": "h"}, {"sinks": "h"}, {"sinks": [1, 2]},
          {"relative": {"table": "r", "bidirectional": False, "max_distance": 20}}]
MASKS = ["none", "causal", {"causal": True, "window": [3, -1]}, {"causal": True, "prefix": 1}, {"key_lengths": 2},
         {"key_lengths": "q"}, {"documents": {"query": "q", "key": "k"}}, {"documents": [0, 1, 1]},
         {"documents": {"query": [[0, 1], [1, 1]], "key": [0, 1, 1]}}, {"dense": "d"},
         {"dense": [[True, False, True]]}, {"all": ["causal", {"any": [{"prefix": 1}, {"window": [0, 0]}]}]}]
ALIGNMENTS = ["bottom-right", "top-left", -1, [0, 1]]


def descriptions():
    def of(**keys):
        return {"model": "m", "written_by": "w", "source": "é", "tokens": [{"name": "t", "grid": [1, 2]}, {"name": "u"}],
                "attentions": [{"name": "a", "layer": 0, "kind": "self", "query_tokens": ["t", "t"],
                                "key_tokens": "u", **keys}]}
    yield of(kind="cross", heads=[0, 7])
    for name, options in (("score", SCORES), ("mask", MASKS), ("alignment", ALIGNMENTS)):
        for option in options:
            yield of(options={name: option})
    yield {"attentions": [{"name": "a"}, {"name": "b", "options": {"mask": "causal", "score": {"sinks": "h"}}}]}
    yield {"attentions": [], "new": {"deep": [[[]]]}}


def recording(description, version="1"):
    tensors = {"a.query": ("F32", [1, 2, 2, 2], 32), "a.key": ("F32", [1, 1, 2, 2], 16),
               "a.lse": ("F32", [1, 2, 2], 16), "d": ("I64", [2], 16)}
    header = {"__metadata__": {"fovea.recording": version, "fovea": json.dumps(description)}}
    end = 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    offsets = struct.pack("<3Q", 0, 1, 3)
    text = "xé".encode()
    header["tokens.t.offsets"] = {"dtype": "I64", "shape": [3], "data_offsets": [end, end + len(offsets)]}
    end += len(offsets)
    header["tokens.t.text"] = {"dtype": "U8", "shape": [3], "data_offsets": [end, end + len(text)]}
    text_of_header = json.dumps(header).encode()
    return struct.pack("<Q", len(text_of_header)) + text_of_header + bytes(end - len(offsets)) + offsets + text


def all_recordings():
    for description in descriptions():
        yield json.dumps(description).encode()
    attention = {"name": "a", "query_tokens": "t", "options": {"mask": {"documents": "d"}}}
    for version in ("1", "1.2", "2"):
        yield recording({"attentions": [attention], "tokens": [{"name": "t"}]}, version)


def all_requests():
    """Requests to the viewer: a target, and after a line break a body."""
    for target in ("/", "/map/a-1/0.1", "/api/v1/inputs/a/find?layer=0&text=a+%C3%A9&side=key&after=3&fold=1",
                   "/api/v1/inputs/a/0.1/cell?query=3&key=2", "/api/v1/inputs/a/0.1/weights?query=1,2,3&range=0:9",
                   "/%2e%2e/x", "/a?b", "/a?b=1&b=2"):
        yield target.encode()
    for body in ('{"rows": "1:20"}', "{}", "[]", '{"rows": {"a": [1, -2.5e3, null]}}'):
        yield f"/api/v1/inputs/a/0.1/pass\n{body}".encode()


def main():
    for name, files in (("npy", all_npy()), ("npz", all_npz()), ("safetensors", all_safetensors()),
                        ("recording", all_recordings()), ("request", all_requests())):
        folder = pathlib.Path(sys.argv[1]) / name
        folder.mkdir(parents=True, exist_ok=True)
        for i, content in enumerate(files):
            (folder / f"seed-{i}").write_bytes(content)


if __name__ == "__main__":
    main()
