"""Compiles kernels/*.cc where that can be done; without them all works, but slower. The rest is in pyproject.toml."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from pathlib import Path
from typing import Any

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


def extension(name: str, **more: Any) -> Extension:
    """One that may fail to compile."""
    source, flags = f"src/caffejax/kernels/{name}.cc", ["-std=c++17", "-Wno-return-type"]  # jaxlib's headers
    headers = [str(f) for f in sorted(Path("src/caffejax/kernels").glob("*.h"))]
    more |= {"extra_compile_args": flags, "depends": headers, "language": "c++", "optional": True}
    return Extension(f"caffejax.kernels._{name}", [source], **more)


extensions = [extension("blocks", depends=["src/caffejax/kernels/tables.h"])] if sys.platform == "linux" else []
if found := headers_and_library():
    extensions += [
        extension(name, include_dirs=found[0], library_dirs=found[1], libraries=["dnnl"])
        for name in ("onednn", "frozen")
    ]
setup(ext_modules=extensions)
