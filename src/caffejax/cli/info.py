"""Print the facts that a problem report needs: versions, devices, CPU kernels, caches and optional packages."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from .._version import __version__
from . import flags

HELP = "versions, devices, kernels, caches, optional packages"
EXAMPLE = "caffejax info --json"
_PACKAGES = ("jax", "jaxlib", "numpy", "optax", "flax", "orbax-checkpoint", "protobuf")
_NOT_INSTALLED = "not installed"
# packages that write the same folder `cv2`
_OPENCV_PACKAGES = (
    "opencv-python-headless",
    "opencv-python",
    "opencv-contrib-python",
    "opencv-contrib-python-headless",
)
_OPTIONAL_PACKAGES = (
    "onnx",
    "flatbuffers",
    "safetensors",
    "matplotlib",
    "tensorboardX",
    "mini-racer",
    "libtpu",
    "shtab",
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    flags.add_json_flag(parser)


def run(options: argparse.Namespace) -> None:
    """Print versions, devices, kernels, caches and extras, as a table or as JSON."""
    facts = collect_facts()
    if options.json:
        flags.print_json(facts)
        return
    for title, values in facts.items():
        print(f"{title}:")
        for name, value in values.items():
            print(f"  {name:24} {value}")


def collect_facts() -> dict[str, dict[str, Any]]:
    """Return facts about the installation as `{title: {name: value}}`; the values are strings or integers."""
    import jax

    from ..cpu.kernels import onednn
    from ..cpu.process_settings import is_freed_memory_kept

    reason = onednn.unavailable_reason()
    return {
        "versions": {
            "caffejax": __version__,
            "Python": f"{platform.python_version()} at {sys.executable}",
            **{name: _find_version(name) for name in _PACKAGES},
            "OpenCV": _describe_opencv(),
        },
        "optional packages": {name: _find_version(name) for name in _OPTIONAL_PACKAGES},
        "machine": {"system": platform.platform(), "processors": os.cpu_count()},
        "devices": {f"{d.platform}:{d.id}": d.device_kind for d in jax.devices()},
        "CPU kernels": {
            "convolutions, products": f"XLA, because {reason}" if reason else "oneDNN",
            "freed memory": "kept for later steps" if is_freed_memory_kept() else "returned to the system",
        },
        "caches": {"compiled programs": jax.config.values["jax_compilation_cache_dir"] or "off"},
    }


def _find_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return _NOT_INSTALLED


def _describe_opencv() -> str:
    """Return the version of each OpenCV package. If there are several, say which is imported."""
    versions = {name: _find_version(name) for name in _OPENCV_PACKAGES}
    packages = [f"{number} ({name})" for name, number in versions.items() if number != _NOT_INSTALLED]
    if len(packages) < 2:
        return "".join(packages) or _NOT_INSTALLED
    from ..core.data.import_cv2 import cv2

    return f"{', '.join(packages)}: they overwrite each other; cv2 is {cv2.__version__}, of the one installed last"
