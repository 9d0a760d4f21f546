"""Install wheels and sdists where there is no compiler, and see each train: with its kernels, or saying it has none.

`python scripts/try_wheels.py dist/*` makes one new environment, in which each replaces the one before. Only what lies
in this environment is found there. With Python 3.11 the first meets the oldest versions of all that it needs (those
of scripts/oldest_versions.py, which have wheels for no newer Python), the others the newest.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from oldest_versions import list_oldest_versions

NET = Path(__file__).parents[1] / "configs" / "digits" / "lenet_train_test.prototxt"
SOLVER = f"""
net: "{NET}" test_iter: 4 test_interval: 50 test_initialization: false base_lr: 0.01 momentum: 0.9 lr_policy: "fixed"
max_iter: 50 snapshot_prefix: "lenet" snapshot_after_train: false random_seed: 1
"""
CONVOLUTION = """
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 dim: 5 dim: 5 } } }
layer { name: "conv" type: "Convolution" bottom: "x" top: "y"
  convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
"""


class Trial:
    """An environment in a folder, without a compiler."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=True)
        self._folder = folder
        (folder / "solver.prototxt").write_text(SOLVER)
        (folder / "convolution.prototxt").write_text(CONVOLUTION)
        our_variables = ("PYTHONPATH", "CAFFEJAX_KERNELS")
        self._settings = {name: value for name, value in os.environ.items() if name not in our_variables} | {
            "PATH": str(folder / "bin"),
            "CC": "false",
            "CXX": "false",
            "JAX_PLATFORMS": "cpu",
            "CAFFEJAX_CACHE": "off",
        }

    def run(self, program: str, *arguments: str) -> str:
        """Return what a command of this environment says; exit where it fails."""
        command = [str(self._folder / "bin" / program), *arguments]
        process = subprocess.run(command, cwd=self._folder, env=self._settings, capture_output=True, text=True)
        output = process.stdout + process.stderr
        if process.returncode:
            sys.exit(f"{' '.join(command)} ended with {process.returncode}:\n{output}")
        return output

    def try_out(self, archive: Path, *, use_oldest: bool) -> None:
        """Install it with the oldest or the newest versions that it allows, and exit unless it does what it should."""
        has_kernels, start = "manylinux" in archive.name, time.monotonic()
        (self._folder / "oldest.txt").write_text("\n".join(list_oldest_versions()))
        versions = ["--constraint=oldest.txt"] if use_oldest else ["--upgrade", "--upgrade-strategy=eager"]
        self.run("pip", "uninstall", "--quiet", "--yes", "caffejax")
        self.run("pip", "install", "--quiet", "--no-compile", *versions, str(archive.resolve()))
        install_end = time.monotonic()
        version = self.run("caffejax", "--version").split()[-1]
        require(f"caffejax-{version}[-.]", archive.name)
        convolutions = "oneDNN$" if has_kernels else "XLA, not oneDNN"
        require(f"Convolutions: +{convolutions}", self.run("caffejax", "device_query"))
        log = self.run("caffejax", "train", "--solver=solver.prototxt")
        require("Convolutions and matrix products are computed by XLA", log, num_matches=0 if has_kernels else 1)
        (accuracy,) = require(r"accuracy = ([\d.]+)", log)
        if float(accuracy) < 0.9:
            sys.exit(f"LeNet's accuracy is {accuracy}:\n{log}")
        require("ok$", self.run("caffejax", "gradcheck", "--model=convolution.prototxt"), num_matches=3)
        times = f"installed in {install_end - start:.0f} s, tried in {time.monotonic() - install_end:.0f}"
        configuration = (
            f"{'with' if has_kernels else 'without'} kernels, {'oldest' if use_oldest else 'newest'} versions"
        )
        print(f"{archive.name}: accuracy {accuracy}, {configuration}; {times}", flush=True)


def require(pattern: str, text: str, num_matches: int = 1) -> list[str]:
    """Return what matches in a text; exit unless it does so many times."""
    matches = re.findall(pattern, text, re.MULTILINE)
    if len(matches) != num_matches:
        sys.exit(f"{pattern!r} is there {len(matches)} times, not {num_matches}, in:\n{text}")
    return matches


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        trial = Trial(Path(name).resolve())
        for i, archive in enumerate(sys.argv[1:]):
            trial.try_out(Path(archive), use_oldest=i == 0 and sys.version_info < (3, 12))
