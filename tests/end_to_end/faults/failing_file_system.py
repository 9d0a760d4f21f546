"""The failing file system of failing.c, compiled, and the settings that make it fail."""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

WRITES = "cwsnmu"  # the letters of all operations that change something
COMPILER = shutil.which("cc") or shutil.which("gcc")
IS_AVAILABLE = sys.platform == "linux" and COMPILER is not None


@dataclass(frozen=True)
class Fault:
    """A fault at operation `operation_number` of these kinds: see failing.c."""

    action: str
    operation_number: int
    kinds: str = WRITES
    duration: int = 1  # in operations; 0: all later ones

    def make_variables(self, library: Path, root: Path) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(library),
            "FAULTS_ROOT": str(root),
            "FAULTS_KINDS": self.kinds,
            "FAULTS_AT": str(self.operation_number),
            "FAULTS_FOR": str(self.duration),
            "FAULTS_DO": self.action,
        }


def compile_shim(folder: Path) -> Path:
    """Compile it into a folder, unless it is there."""
    library = folder / "failing.so"
    if not library.exists():
        source = Path(__file__).with_name("failing.c")
        assert COMPILER is not None
        subprocess.run(
            [COMPILER, "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True
        )
    return library


def read_operations(log: Path) -> list[tuple[str, str]]:
    """Return the operations in the folder, by a log of the shim: letters and paths."""
    lines = [line.split(" ", 2) for line in log.read_text().splitlines()]
    return [(kind, path) for _, kind, path in lines]
