"""Compiles kernels/*.cc where possible; without them all works, but slower. All else is in pyproject.toml.

The kernels do not call Python; jaxlib and ctypes call them. So one wheel with them serves every CPython from 3.11 on.
`CAFFEJAX_KERNELS=none` in the environment leaves them out: that wheel is for every system.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_py import build_py


def headers_and_library() -> tuple[list[str], list[str]] | None:
    """Return the folders of jaxlib's and oneDNN's headers, and of oneDNN's library; None if not installed."""
    jaxlib = importlib.util.find_spec("jaxlib")
    try:
        header, library = (
            next(Path(str(f.locate())).resolve() for f in importlib.metadata.files(package) or () if f.match(name))
            for package, name in (("onednn-devel-cpu-gomp", "dnnl/dnnl.hpp"), ("onednn-cpu-gomp", "libdnnl.so"))
        )
    except (importlib.metadata.PackageNotFoundError, StopIteration):
        return None
    if jaxlib is None or jaxlib.origin is None:
        return None
    return [str(Path(jaxlib.origin).parent / "include"), str(header.parents[2])], [str(library.parent)]


def extension(name: str, **options: Any) -> Extension:
    """Return an extension module that is left out where it does not compile."""
    source = f"src/caffejax/cpu/kernels/{name}.cc"
    flags = ["-std=c++17", "-Wno-return-type", "-fno-math-errno"]  # jaxlib's headers; roots in vectors
    headers = [str(f) for f in sorted(Path("src/caffejax/cpu/kernels").glob("*.h"))]
    options |= {"extra_compile_args": flags, "depends": headers, "language": "c++"}
    return Extension(f"caffejax.cpu.kernels._{name}", [source], optional=True, py_limited_api=True, **options)


def extensions() -> list[Extension]:
    """Return the extension modules that this system can compile."""
    if os.environ.get("CAFFEJAX_KERNELS") == "none" or sys.platform != "linux":
        return []
    folders = headers_and_library()
    if folders is None:
        return []
    return [
        extension(name, include_dirs=folders[0], library_dirs=folders[1], libraries=["dnnl"])
        for name in ("onednn", "onednn_program")
    ]


class BuildWithDemos(build_py):
    """Copies the nets of `caffejax demo` into wheels; in a checkout the command takes them from configs/."""

    def run(self) -> None:
        """Build, then copy."""
        super().run()
        for name in () if self.editable_mode else ("digits", "ssd_shapes"):
            target = Path(self.build_lib) / "caffejax" / "demos" / name
            unwanted = shutil.ignore_patterns("lock.mdb", "shapes_*_lmdb")
            shutil.copytree(Path("configs") / name, target, ignore=unwanted, dirs_exist_ok=True)


setup(
    ext_modules=extensions(),
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
    cmdclass={"build_py": BuildWithDemos},
)
