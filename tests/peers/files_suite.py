# SPDX-License-Identifier: Apache-2.0
"""Round trips of files that NumPy, ml_dtypes and safetensors write, through Fovea's readers and writers: the
elements and the files must be identical, bit by bit.

tests/peers/run runs it in its virtual environment, with the path of files_call.cc's library.
"""

import ctypes
import pathlib
import sys
import tempfile

import ml_dtypes
import numpy as np
import safetensors
import safetensors.numpy

import suite

# Arrays of OWN_TYPES keep their type when read; those of INTEGERS become int64.
OWN_TYPES = ["float32", "float64", "float16", "bfloat16", "int64", "bool"]
INTEGERS = ["int8", "int16", "int32", "uint8", "uint16", "uint32", "uint64"]
SHAPES = [(), (1,), (7,), (0,), (3, 0, 2), (2, 3), (3, 5, 7), (1, 2, 1, 3, 1, 2), (1000, 33)]
MANY = 300


def dtype_of(name):
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def array_of(name, shape, seed=0):
    """Returns an array of random bits, with NaNs of all kinds, infinities and subnormal numbers."""
    random = np.random.default_rng([seed, *shape, len(shape)])
    dtype = dtype_of(name)
    if name == "bool":
        return random.integers(0, 2, shape).astype(bool)
    if name == "uint64":
        return random.integers(0, 1 << 63, shape, dtype=np.uint64)
    count = int(np.prod(shape))
    bits = random.integers(0, 256, count * dtype.itemsize, dtype=np.uint8)
    return bits.view(dtype).reshape(shape)


def check_same(what, got, expected):
    if got.dtype == np.dtype("V2") and expected.dtype == dtype_of("bfloat16"):
        got = got.view(expected.dtype)
    if got.dtype != expected.dtype or got.shape != expected.shape:
        raise suite.Mismatch(f"{what}: {got.dtype} {list(got.shape)}, expected {expected.dtype} "
                             f"{list(expected.shape)}")
    if got.tobytes() != expected.tobytes():
        raise suite.Mismatch(f"{what}: bits differ")


def as_read(array):
    """Returns the array that Fovea reads: integers become int64."""
    return array.astype(np.int64) if array.dtype.kind in "iu" else array


class Files:
    """Writes files with the Python libraries, copies them with Fovea, and reads the copies back in Python."""

    def __init__(self, library, folder):
        self.copy_tensors = ctypes.CDLL(str(library)).peer_copy_tensors
        self.copy_tensors.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_bool]
        self.copy_tensors.restype = ctypes.c_char_p
        self.folder = pathlib.Path(folder)

    def copy(self, source, ending, bfloat16=False):
        target = self.folder / f"copy{ending}"
        message = self.copy_tensors(str(source).encode(), str(target).encode(), bfloat16)
        if message is not None:
            raise suite.Mismatch(message.decode())
        return target

    def write(self, ending, arrays, compress=False):
        path = self.folder / f"original{ending}"
        if ending == ".npy":
            np.save(path, *arrays.values())
        elif ending == ".npz":
            (np.savez_compressed if compress else np.savez)(path, **arrays)
        else:
            safetensors.numpy.save_file(arrays, path)
        return path

    @staticmethod
    def read(path):
        if path.suffix == ".safetensors":
            return safetensors.numpy.load_file(path)
        loaded = np.load(path, allow_pickle=False)
        return dict(loaded) if path.suffix == ".npz" else {"tensor": loaded}

    def check(self, ending, arrays, to=None, **options):
        """Checks a round trip through Fovea. If no type is converted, the files must be equal byte by byte."""
        source = self.write(ending, arrays, **options)
        target = self.copy(source, to or ending, bfloat16=any(a.dtype == dtype_of("bfloat16")
                                                              for a in arrays.values()))
        got = self.read(target)
        expected = {name: as_read(array) for name, array in arrays.items()}
        if sorted(got) != sorted(expected):
            raise suite.Mismatch(f"names {sorted(got)}, expected {sorted(expected)}")
        for name, array in expected.items():
            check_same(name, got[name], array)
        unchanged = all(array.dtype == expected[name].dtype and array.flags.c_contiguous
                        and array.dtype.isnative for name, array in arrays.items())
        if unchanged and to is None and not options.get("compress"):
            if source.read_bytes() != target.read_bytes():
                raise suite.Mismatch("the files differ")
        return 0.0

    def one_type(self, name):
        cases = {}
        for shape in SHAPES:
            array = array_of(name, shape)
            arrays = {"tensor": array}
            for ending in (".npy", ".npz", ".safetensors"):
                cases[f"{ending} {shape}"] = lambda e=ending, a=arrays: self.check(e, a)
            cases[f"compressed {shape}"] = lambda a=arrays: self.check(".npz", a, compress=True)
            for to in (".npz", ".safetensors"):
                cases[f".npy to {to} {shape}"] = lambda a=arrays, t=to: self.check(".npy", a, to=t)
            if name != "bfloat16":
                swapped = {"tensor": array.astype(array.dtype.newbyteorder(">"))}
                cases[f"big-endian {shape}"] = lambda a=swapped: self.check_order(a)
                columns = {"tensor": np.asfortranarray(array)}
                cases[f"Fortran {shape}"] = lambda a=columns: self.check(".npy", a)
                cases[f"Fortran, npz {shape}"] = lambda a=columns: self.check(".npz", a)
        return cases

    def check_order(self, arrays):
        source = self.write(".npy", arrays)
        native = arrays["tensor"].astype(arrays["tensor"].dtype.newbyteorder("="))
        check_same("tensor", self.read(self.copy(source, ".npy"))["tensor"], as_read(native))
        return 0.0

    def versions(self):
        cases = {}
        for version in ((1, 0), (2, 0), (3, 0)):
            def case(version=version):
                array = array_of("float32", (3, 5))
                path = self.folder / "version.npy"
                with open(path, "wb") as file:
                    np.lib.format.write_array(file, array, version=version)
                check_same("tensor", self.read(self.copy(path, ".npy"))["tensor"], array)
                return 0.0
            cases[str(version)] = case
        return cases

    def containers(self):
        mixed = {f"{name}.{i}": array_of(name, shape, i)
                 for i, (name, shape) in enumerate((n, s) for n in OWN_TYPES for s in SHAPES)}
        many = {f"layers.{i}.weight": array_of("float32", (i % 5, 3), i) for i in range(MANY)}
        odd = {"a b": array_of("float32", (2,)), "straße/猫": array_of("float64", (3,)),
               "quote\"\\": array_of("int64", (2, 2)), "x:y": array_of("bool", (4,))}
        return {f"{what}{ending}": lambda e=ending, a=arrays: self.check(e, a)
                for what, arrays in (("mixed", mixed), ("many", many), ("odd names", odd), ("none", {}))
                for ending in (".npz", ".safetensors")}

    def metadata(self):
        array = array_of("float32", (2, 3))
        path = self.folder / "metadata.safetensors"
        safetensors.numpy.save_file({"a": array}, path, metadata={"made by": "\"us\"\n", "é": "猫"})
        check_same("a", self.read(self.copy(path, ".safetensors"))["a"], array)
        return f"safetensors {safetensors.__version__}"


def main():
    tally = suite.Tally()
    with tempfile.TemporaryDirectory() as folder:
        files = Files(sys.argv[1], folder)
        for name in OWN_TYPES + INTEGERS:
            tally.run_group(f"files of {name}", files.one_type(name))
        tally.run_group("files of each version", files.versions())
        tally.run_group("files of many tensors", files.containers())
        tally.run("files with metadata", files.metadata)
    return tally.close(f"Files of NumPy {np.__version__} and safetensors {safetensors.__version__}")


if __name__ == "__main__":
    sys.exit(main())
