"""Compiles kernels/onednn.cc where that can be done; without it XLA's kernels run. The rest is in pyproject.toml."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path

from setuptools import Extension, setup


def headers_and_library() -> tuple[list[str], list[str]] | None:
    """The folders of jaxlib's and oneDNN's headers, and of oneDNN's library; None where these are not installed."""
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


found = headers_and_library()
extensions = []
if found:
    extensions = [
        Extension(
            "caffejax.kernels._onednn",
            ["src/caffejax/kernels/onednn.cc"],
            include_dirs=found[0],
            library_dirs=found[1],
            libraries=["dnnl"],
            extra_compile_args=["-std=c++17", "-Wno-return-type"],  # jaxlib's headers
            language="c++",
            optional=True,
        )
    ]
setup(ext_modules=extensions)
