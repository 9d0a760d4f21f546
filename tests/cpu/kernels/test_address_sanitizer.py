"""The foreign functions under AddressSanitizer: random valid and invalid calls stay within their memory.

onednn.cc is tested by random calls; for onednn_program.cc the tests of frozen nets run again.

It checks all reads and writes of these functions, and every call of malloc and free in the process. Because operands of
onednn.cc are between fences (see fuzz_foreign_functions.py), it also checks reads and writes of oneDNN's code, which is
not instrumented, beyond operands. It does not check writes of that code beyond results, which XLA allocates; but every
result is compared, and no invalid call reaches that code.
"""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from caffejax.cpu.kernels import onednn

REPOSITORY = Path(__file__).parents[3]
NUM_CALLS = 600


def find_runtime_library(name: str) -> Path | None:
    """Return the path of a library of the compiler, if it exists."""
    result = subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    path = Path(result.stdout.strip())
    return path.resolve() if path.is_absolute() else None


def find_package_file(package: str, file: str) -> Path | None:
    try:
        return next(Path(str(f.locate())) for f in importlib.metadata.files(package) or () if f.match(file))
    except (importlib.metadata.PackageNotFoundError, StopIteration):
        return None


@pytest.fixture(scope="module")
def ld_preload() -> str:
    """Return the value of LD_PRELOAD; skip where the test cannot run."""
    if not shutil.which("g++"):
        pytest.skip("needs g++")
    if not (REPOSITORY / "setup.py").exists() or find_package_file("onednn-devel-cpu-gomp", "dnnl/dnnl.hpp") is None:
        pytest.skip("needs the sources and the package onednn-devel-cpu-gomp")
    libraries = [
        find_runtime_library("libasan.so"),
        find_runtime_library("libstdc++.so.6"),
    ]  # the latter or exceptions cannot be thrown
    if None in libraries:
        pytest.skip("needs libasan")
    return " ".join(map(str, libraries))


@pytest.fixture(scope="module")
def sanitized_build(ld_preload: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the package, compiled with AddressSanitizer."""
    folder = tmp_path_factory.mktemp("sanitized")
    compiler_flags = "-fsanitize=address -fno-omit-frame-pointer -O1"
    # by the names that old and new setuptools know
    flags = {"CFLAGS": compiler_flags, "CXXFLAGS": compiler_flags, "LDFLAGS": "-fsanitize=address"}
    command = [
        sys.executable,
        "setup.py",
        "build_ext",
        "--build-lib",
        str(folder),
        "--build-temp",
        str(folder / "temp"),
    ]
    build = subprocess.run(command, cwd=REPOSITORY, env=os.environ | flags, capture_output=True, text=True)
    assert build.returncode == 0, build.stderr
    libraries = {f.name.split(".")[0]: f.read_bytes() for f in folder.glob("caffejax/cpu/kernels/*.so")}
    assert libraries.keys() >= {"_onednn", "_onednn_program"}, build.stderr
    assert all(b"__asan" in library for library in libraries.values())
    ignore_binaries = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(REPOSITORY / "src" / "caffejax", folder / "caffejax", ignore=ignore_binaries, dirs_exist_ok=True)
    return folder


def run_with_sanitizer(ld_preload: str, command: list[str], **environment: str) -> str:
    """Run a command with AddressSanitizer and return what it prints."""
    environment |= {
        "LD_PRELOAD": ld_preload,
        # Python and XLA keep what they have until the end; the rest are the errors that it would end with anyway
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:detect_odr_violation=0",
        "JAX_PLATFORMS": "cpu",
        "OMP_WAIT_POLICY": "passive",
    }
    process = subprocess.run(
        [sys.executable, *command], cwd=REPOSITORY, env=os.environ | environment, capture_output=True, text=True
    )
    output = f"{process.stdout[-3000:]}\n{process.stderr[-5000:]}"
    assert process.returncode == 0, output
    assert "AddressSanitizer" not in output
    return process.stdout


@pytest.mark.long
def test_valid_and_invalid_calls_stay_within_their_memory(ld_preload: str, sanitized_build: Path) -> None:
    dnnl_path, library_path = (
        find_package_file(onednn.PACKAGE, "libdnnl.so.3"),
        next(sanitized_build.glob("caffejax/cpu/kernels/_onednn.*so")),
    )
    script = Path(__file__).with_name("fuzz_foreign_functions.py")
    output = run_with_sanitizer(ld_preload, [str(script), str(dnnl_path), str(library_path), str(NUM_CALLS)])
    num_valid, num_invalid = (int(word) for word in output.split() if word.isdigit())
    assert num_valid > NUM_CALLS / 4
    assert num_invalid > NUM_CALLS / 4


@pytest.mark.long
def test_programs_stay_within_their_memory(ld_preload: str, sanitized_build: Path) -> None:
    files = [f"tests/cpu/frozen/{name}.py" for name in ("test_bad_programs", "test_memory_plan")]
    output = run_with_sanitizer(
        ld_preload,
        ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--capture=no", "-m", "not long", *files],
        PYTHONPATH=str(sanitized_build),
    )
    assert "skipped" not in output
    assert int(re.search(r"(\d+) passed", output)[1]) > 50
