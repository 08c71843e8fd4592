# SPDX-License-Identifier: Apache-2.0
"""Builds and runs programs outside Fovea: against the installed tree, found by CMake or by pkg-config, with static
and shared libraries; and with Fovea as a subdirectory of their build. Also compares the exported symbols of the
shared libraries with the lists in exported/; UPDATE=1 rewrites the lists.

Run by ctest, which sets FOVEA_BUILD, FOVEA_SOURCE, FOVEA_WERROR, CMAKE, CXX and
CMAKE_CXX_COMPILER_LAUNCHER.
"""

import os
import pathlib
import shutil
import subprocess
import unittest

BUILD = pathlib.Path(os.environ["FOVEA_BUILD"])
SOURCE = pathlib.Path(os.environ["FOVEA_SOURCE"])
CMAKE = os.environ["CMAKE"]
CXX = os.environ["CXX"]
LAUNCHER = os.environ["CMAKE_CXX_COMPILER_LAUNCHER"]  # ccache, or empty
HERE = pathlib.Path(__file__).resolve().parent


def run(*command, env=None):
    """Runs a command and returns its output. If the command fails, raises an error that contains the output."""
    result = subprocess.run([str(word) for word in command], env={**os.environ, **(env or {})},
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode != 0:
        line = " ".join(str(word) for word in command)
        raise AssertionError(f"exit code {result.returncode}: {line}\n{result.stdout}")
    return result.stdout


def fresh(directory):
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


def configure(build, *arguments):
    return run(CMAKE, "-G", "Ninja", "-S", HERE, "-B", build, f"-DCMAKE_CXX_COMPILER={CXX}",
               f"-DCMAKE_CXX_COMPILER_LAUNCHER={LAUNCHER}", *arguments)


def needed_libraries(program):
    """Returns the libraries that a program needs, according to `readelf` of the compiler's binutils."""
    return [line.split("[")[1].rstrip("]") for line in run("readelf", "-d", program).splitlines()
            if "(NEEDED)" in line]


# Dependencies that a program with only attention must not have.
OTHERS = ("zip", "libz.", "utf8proc", "json", "dnnl")


def exported(library):
    """Returns the demangled names of the symbols that a shared library exports, by nm."""
    lines = run("nm", "-D", "--defined-only", "--demangle", library).splitlines()
    # An empty version node and GCC's ABI tag of std::string are not part of a name.
    return sorted({line.split(" ", 2)[2].replace("[abi:cxx11]", "") for line in lines})


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = fresh(BUILD / "consumer" / "installed")
        # Installed to one prefix and moved to another: no file may contain the first path.
        run(CMAKE, "--install", BUILD, "--prefix", cls.scratch / "first")
        cls.prefix = (cls.scratch / "first").rename(cls.scratch / "moved")
        cls.libdir = next(cls.prefix.rglob("libfovea.a")).parent
        cls.objects = {}

    def build_with_cmake(self, name, *arguments, program="consumer"):
        build = self.scratch / name
        configure(build, f"-DCMAKE_PREFIX_PATH={self.prefix}", *arguments)
        run(CMAKE, "--build", build, "--target", program)
        self.assertEqual(run(build / program), "ok\n")
        return needed_libraries(build / program)

    def build_with_pkg_config(self, name, library_dir, *options, source="attention.cc", also=("fovea",)):
        def flags(*kinds):
            return run("pkg-config", *kinds, *options, *also,
                       env={"PKG_CONFIG_PATH": str(library_dir / "pkgconfig")}).split()

        # Each source is compiled once for both kinds of library, because their flags are the same.
        prefix = library_dir.parents[len(self.libdir.relative_to(self.prefix).parts) - 1]
        compiler = [flag.replace(str(prefix), str(self.prefix)) for flag in flags("--cflags")]
        compiled = self.objects.setdefault((source, *compiler), self.scratch / f"{name}.o")
        if not compiled.exists():
            run(CXX, "-std=c++20", f"-I{HERE}", "-c", HERE / source, "-o", compiled, *compiler)
        program = self.scratch / name
        run(CXX, compiled, "-o", program, *flags("--cflags", "--libs"))
        self.assertEqual(run(program, env={"LD_LIBRARY_PATH": str(library_dir)}), "ok\n")
        return needed_libraries(program)

    def archive_only(self, name):
        """Copies the installed tree without its shared libraries, which a linker prefers; returns the library folder."""
        prefix = self.scratch / name
        shutil.copytree(self.prefix, prefix, symlinks=True)
        library_dir = prefix / self.libdir.relative_to(self.prefix)
        for shared in library_dir.glob("libfovea*.so*"):
            shared.unlink()
        return library_dir

    def test_installed_files(self):
        for path in ("include/fovea/tensor.h", "include/fovea/attention.h",
                     "include/fovea/custom_score.h", "include/fovea/export.h", "include/fovea/simd_math-inl.h",
                     "include/fovea/simd_targets.h", "bin/fovea", "bin/fovea-bench",
                     "share/man/man1/fovea.1", "share/man/man1/fovea-bench.1", "share/man/man1/fovea-attend.1",
                     "share/bash-completion/completions/fovea", "share/zsh/site-functions/_fovea",
                     "share/fish/vendor_completions.d/fovea.fish",
                     "share/fovea/scene.schema.json", "share/fovea/recording.schema.json",
                     "share/fovea/scenes/001_your_journey.json",
                     "share/doc/fovea/LICENSE", "share/doc/fovea/README.md"):
            self.assertGreater((self.prefix / path).stat().st_size, 0, path)

    def test_installed_command_line_runs(self):
        self.assertIn("0.", run(self.prefix / "bin" / "fovea", "--version"))

    def test_no_file_contains_build_or_install_paths(self):
        for path in self.prefix.rglob("*"):
            if path.suffix in {".cmake", ".pc"}:
                text = path.read_text()
                for place in (str(self.scratch), str(SOURCE)):
                    self.assertNotIn(place, text, path)

    def test_find_package_static(self):
        needed = self.build_with_cmake("static", "-DFOVEA_KIND=static")
        self.assertNotIn("libfovea", " ".join(needed))
        self.assert_attention_alone(self.scratch / "static" / "consumer")

    def test_find_package_shared(self):
        # CMake must not search for packages that only the static library links to.
        hidden = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON"
                  for name in ("fmt", "hwy", "OpenMP", "PkgConfig")]
        needed = self.build_with_cmake("shared", "-DFOVEA_KIND=shared", *hidden)
        self.assertIn("libfovea.so", " ".join(needed))
        self.assert_attention_alone(self.scratch / "shared" / "consumer")

    def assert_attention_alone(self, program):
        """Checks that neither the loaded libraries nor the compiled headers involve files, JSON or layers."""
        loaded = run("ldd", program)
        read = run("ninja", "-C", program.parent, "-t", "deps")
        self.assertIn("libfmt", loaded)
        self.assertIn("fovea/attention.h", read)
        for other in OTHERS:
            self.assertNotIn(other, loaded)
            self.assertNotIn(other, read)

    def test_shared_libraries_export_only_public_names(self):
        for name in ("fovea", "fovea_files", "fovea_scene", "fovea_recording", "fovea_nn", "fovea_train", "fovea_mpi"):
            library = self.libdir / f"lib{name}.so"
            if not library.exists():
                continue  # a build without layers or MPI
            with self.subTest(name):
                found, listed = exported(library), HERE / "exported" / f"{name}.txt"
                if os.environ.get("UPDATE"):
                    listed.write_text("\n".join(found) + "\n")
                self.assertEqual(found, listed.read_text().splitlines())
                print(f"lib{name}.so exports {len(found)} names")

    def test_scene_by_find_package(self):
        for kind, library in (("static", "libutf8proc.so"), ("shared", "libfovea_scene.so")):
            with self.subTest(kind):
                needed = self.build_with_cmake(f"scene_{kind}", f"-DFOVEA_KIND={kind}", "-DSCENE=ON",
                                               program="consumer_scene")
                self.assertIn(library, " ".join(needed))

    def test_scene_by_pkg_config(self):
        scene = {"source": "scene.cc", "also": ["fovea-scene"]}
        needed = self.build_with_pkg_config("pc_scene_shared", self.libdir, **scene)
        self.assertIn("libfovea_scene.so", " ".join(needed))
        needed = self.build_with_pkg_config("pc_scene_static", self.archive_only("archive_scene"), "--static",
                                            **scene)
        self.assertNotIn("libfovea", " ".join(needed))

    def test_find_package_follows_build_shared_libs(self):
        self.assertNotIn("libfovea", " ".join(self.build_with_cmake("default")))
        needed = self.build_with_cmake("default_shared", "-DBUILD_SHARED_LIBS=ON")
        self.assertIn("libfovea.so", " ".join(needed))

    def test_find_package_names_missing_dependencies(self):
        with self.assertRaisesRegex(AssertionError, r"fovea::static needs fmt::fmt"):
            configure(self.scratch / "missing", f"-DCMAKE_PREFIX_PATH={self.prefix}",
                      "-DCMAKE_DISABLE_FIND_PACKAGE_fmt=ON")
        with self.assertRaisesRegex(AssertionError, r'no component\s+"frozen"'):
            configure(self.scratch / "unknown", f"-DCMAKE_PREFIX_PATH={self.prefix}",
                      "-DFOVEA_KIND=frozen")

    def test_pkg_config_shared(self):
        needed = self.build_with_pkg_config("pc_shared", self.libdir)
        self.assertIn("libfovea.so", " ".join(needed))

    def test_pkg_config_static(self):
        # `--static` lists all dependencies of the archive.
        needed = self.build_with_pkg_config("pc_static", self.archive_only("archive"), "--static")
        self.assertNotIn("libfovea", " ".join(needed))

    def test_custom_score_by_find_package(self):
        for kind in ("static", "shared"):
            with self.subTest(kind):
                needed = self.build_with_cmake(f"custom_{kind}", f"-DFOVEA_KIND={kind}",
                                               "-DCUSTOM_SCORE=ON", program="consumer_custom_score")
                self.assertEqual("libfovea" in " ".join(needed), kind == "shared")

    def test_layers_by_find_package(self):
        for kind, libraries in (("static", ["libdnnl.so"]), ("shared", ["libfovea_nn.so"]),
                                ("", ["libdnnl.so"])):
            with self.subTest(kind):
                needed = self.build_with_cmake(f"layers_{kind}", f"-DFOVEA_KIND={kind}",
                                               "-DLAYERS=ON", program="consumer_layers")
                for library in libraries:
                    self.assertIn(library, " ".join(needed))
        with self.assertRaisesRegex(AssertionError, r"fovea::nn_static needs DNNL::dnnl"):
            configure(self.scratch / "no_onednn", f"-DCMAKE_PREFIX_PATH={self.prefix}",
                      "-DLAYERS=ON", "-Ddnnl_LIBRARY=OFF")  # as if it were not installed

    def test_layers_by_pkg_config(self):
        layers = {"source": "layers.cc", "also": ["fovea-nn"]}
        needed = self.build_with_pkg_config("pc_layers_shared", self.libdir, **layers)
        self.assertIn("libfovea_nn.so", " ".join(needed))
        library_dir = self.archive_only("archive_layers")
        needed = self.build_with_pkg_config("pc_layers_static", library_dir, "--static", **layers)
        self.assertNotIn("libfovea", " ".join(needed))

    def test_mpi(self):
        if not (self.libdir / "libfovea_mpi.so").exists():
            self.skipTest("a build without FOVEA_MPI")
        for kind in ("static", "shared"):
            with self.subTest(kind):
                needed = " ".join(self.build_with_cmake(f"mpi_{kind}", f"-DFOVEA_KIND={kind}", "-DMPI=ON",
                                                        program="consumer_mpi"))
                self.assertIn("libmpi.so", needed)
                self.assertEqual("libfovea_mpi.so" in needed, kind == "shared")
                self.assertNotIn("libmpi_cxx", needed)
        with self.assertRaisesRegex(AssertionError, r"fovea::mpi_shared needs MPI::MPI_CXX"):
            configure(self.scratch / "no_mpi", f"-DCMAKE_PREFIX_PATH={self.prefix}", "-DFOVEA_KIND=shared",
                      "-DMPI=ON", "-DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON")
        # The compiler wrapper of MPI adds its flags.
        config = {"PKG_CONFIG_PATH": str(self.libdir / "pkgconfig")}
        flags = run("pkg-config", "--cflags", "--libs", "fovea-mpi", env=config).split()
        run("mpicxx", "-std=c++20", HERE / "mpi.cc", "-o", self.scratch / "pc_mpi", *flags, env={"OMPI_CXX": CXX})
        self.assertEqual(run(self.scratch / "pc_mpi", env={"LD_LIBRARY_PATH": str(self.libdir)}), "ok\n")

    def test_custom_score_by_pkg_config(self):
        custom = {"source": "custom_score.cc", "also": ["fovea", "libhwy"]}
        needed = self.build_with_pkg_config("pc_custom_shared", self.libdir, **custom)
        self.assertIn("libfovea.so", " ".join(needed))
        library_dir = self.archive_only("archive_custom")
        needed = self.build_with_pkg_config("pc_custom_static", library_dir, "--static", **custom)
        self.assertNotIn("libfovea", " ".join(needed))

    def check_custom_score(self, *arguments):
        config = {"PKG_CONFIG_PATH": str(self.libdir / "pkgconfig")}
        flags = run("pkg-config", "--cflags", "fovea", "libhwy", env=config).split()
        run(CXX, "-std=c++20", "-fsyntax-only", "-Wfatal-errors", f"-I{HERE}", *arguments, HERE / "custom_score.cc",
            *flags)

    def test_custom_score_without_derivative_does_not_compile(self):
        with self.assertRaisesRegex(AssertionError, "Distance has no derivative"):
            self.check_custom_score("-DWITHOUT_DERIVATIVE")

    def test_custom_score_for_other_targets_does_not_compile(self):
        # Highway included before the list, or a list that lacks one of Fovea's disabled targets. A longer list is
        # allowed.
        for list_of_ones_own in ("-DWITHOUT_TARGETS", "-DHWY_DISABLED_TARGETS=HWY_SSE4",
                                 "-DHWY_DISABLED_TARGETS=0"):
            with self.subTest(list_of_ones_own):
                with self.assertRaisesRegex(AssertionError, "include fovea/simd_targets.h before Highway"):
                    self.check_custom_score(list_of_ones_own)
        self.check_custom_score("-DHWY_DISABLED_TARGETS=(FOVEA_DISABLED_TARGETS|HWY_SSE4)")


# Hides packages from CMake that only other parts of Fovea need.
HIDDEN = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON"
          for name in ("CLI11", "GTest", "PNG", "PkgConfig", "ZLIB", "nlohmann_json")]


class Subdirectory(unittest.TestCase):
    def test_add_subdirectory(self):
        # This compiles the whole library again, so the folder is kept between runs. With ccache, the flags are those
        # of the build, so that its objects are reused; otherwise they are chosen for fast compilation. Packages that
        # only Fovea's own programs and tests need are hidden. The folder is next to the build tree, so that relative
        # paths are the same for ccache (CCACHE_BASEDIR).
        build = BUILD.with_name(f"{BUILD.name}-subdirectory")
        quick = ["-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O0"]
        alike = ["-DCMAKE_BUILD_TYPE=Release", f"-DFOVEA_WERROR={os.environ['FOVEA_WERROR']}"]
        configure(build, f"-DFOVEA_SOURCE={SOURCE}", *(alike if LAUNCHER else quick), *HIDDEN, "-DCUSTOM_SCORE=ON")
        run(CMAKE, "--build", build)
        read = run("ninja", "-C", build, "-t", "deps")
        self.assertIn("kernels/forward/forward", read)
        for other in ("zip.h", "zlib.h", "utf8proc.h", "nlohmann", "dnnl"):
            self.assertNotIn(other, read)
        for program in ("consumer", "consumer_custom_score"):
            self.assertEqual(run(build / program), "ok\n", program)

        prefix = fresh(BUILD / "consumer" / "subdirectory_prefix")
        run(CMAKE, "--install", build, "--prefix", prefix)
        self.assertEqual(list(prefix.iterdir()), [], "Fovea installs itself with another project")


    def test_fetch_content(self):
        # Only clones and configures; test_add_subdirectory builds the same targets.
        if not (SOURCE / ".git").exists():
            self.skipTest("not a clone of git's, from which to fetch")
        build = fresh(BUILD / "consumer" / "fetch")
        configure(build, f"-DFOVEA_SOURCE=file://{SOURCE}", "-DFETCH=ON", "-DCMAKE_BUILD_TYPE=Release", *HIDDEN)
        targets = run("ninja", "-C", build, "-t", "targets", "all")
        self.assertIn("libfovea.a", targets)
        self.assertIn("_deps/fovea-src/src/kernels", run("ninja", "-C", build, "-t", "compdb"))


if __name__ == "__main__":
    unittest.main()
