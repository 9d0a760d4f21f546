"""The foreign functions under AddressSanitizer: right and wrong calls at random touch no memory that is not theirs.

What it sees: all that onednn.cc itself reads and writes, every call of malloc and free in the process, and, since
operands lie between fences (see fuzz_foreign_functions.py), what oneDNN's own code, which nobody instrumented, reads
and writes beyond operands. What it does not see: what that code writes beyond results, which XLA allocates; but every
result is compared, and no wrong call comes as far as that.
"""

import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from caffejax.kernels import onednn

REPOSITORY = Path(__file__).parents[2]
CALLS = 600


def runtime(name: str) -> Path | None:
    """A library of the compiler's, if it has it."""
    found = subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    path = Path(found.stdout.strip())
    return path.resolve() if path.is_absolute() else None


def installed(package: str, file: str) -> Path | None:
    try:
        return next(Path(str(f.locate())) for f in importlib.metadata.files(package) or () if f.match(file))
    except (importlib.metadata.PackageNotFoundError, StopIteration):
        return None


@pytest.fixture(scope="module")
def preloaded() -> str:
    """What has to be loaded before all else, for LD_PRELOAD; skips where the test cannot be made."""
    if not shutil.which("g++"):
        pytest.skip("needs g++")
    if not (REPOSITORY / "setup.py").exists() or installed("onednn-devel-cpu-gomp", "dnnl/dnnl.hpp") is None:
        pytest.skip("needs the sources and the package onednn-devel-cpu-gomp")
    libraries = [runtime("libasan.so"), runtime("libstdc++.so.6")]  # the latter or exceptions cannot be thrown
    if None in libraries:
        pytest.skip("needs libasan")
    return " ".join(map(str, libraries))


@pytest.fixture(scope="module")
def library(preloaded: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """onednn.cc, compiled with AddressSanitizer."""
    folder = tmp_path_factory.mktemp("sanitized")
    flags = {"CFLAGS": "-fsanitize=address -fno-omit-frame-pointer -g -O1", "LDFLAGS": "-fsanitize=address"}
    command = [
        sys.executable,
        "setup.py",
        "build_ext",
        "--build-lib",
        str(folder),
        "--build-temp",
        str(folder / "temp"),
    ]
    made = subprocess.run(command, cwd=REPOSITORY, env=os.environ | flags, capture_output=True, text=True)
    found = list(folder.glob("caffejax/kernels/_onednn*.so"))
    assert made.returncode == 0, made.stderr
    assert found, made.stderr
    return found[0]


@pytest.mark.long
def test_right_and_wrong_calls(preloaded: str, library: Path) -> None:
    dnnl = installed(onednn.PACKAGE, "libdnnl.so.3")
    fuzz = Path(__file__).with_name("fuzz_foreign_functions.py")
    settings = {
        "LD_PRELOAD": preloaded,
        # Python and XLA keep what they have until the end; the rest are the errors that it would end with anyway
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:detect_odr_violation=0",
        "JAX_PLATFORMS": "cpu",
        "OMP_WAIT_POLICY": "passive",
    }
    command = [sys.executable, str(fuzz), str(dnnl), str(library), str(CALLS)]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-5000:]
    assert "AddressSanitizer" not in done.stderr, done.stderr[-5000:]
    right, wrong = (int(word) for word in done.stdout.split() if word.isdigit())
    assert right > CALLS / 4
    assert wrong > CALLS / 4
