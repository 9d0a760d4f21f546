"""The cache of oneDNN's primitives and the arena pool are bounded and thread-safe: sanitizers find no race or leak."""

import shutil
import subprocess
from pathlib import Path

import pytest

TESTS_FOLDER = Path(__file__).parent
KERNELS = TESTS_FOLDER.parents[2] / "src/caffejax/cpu/kernels"


def can_compile_and_run(compile_command: list[str], folder: Path) -> bool:
    """Return whether an empty program is compiled and runs."""
    source, program = folder / "nothing.cc", folder / "nothing"
    source.write_text("int main() {}")
    commands = [*compile_command, str(source), "-o", str(program)], [program]
    return all(subprocess.run(command, capture_output=True).returncode == 0 for command in commands)


@pytest.mark.long
@pytest.mark.parametrize("source", ["cache_test.cc", "arena_pool_test.cc"])
@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_sanitizers_report_no_error_with_many_threads(source: str, sanitizer: str, tmp_path: Path) -> None:
    compiler, program = shutil.which("g++"), tmp_path / "program"
    if compiler is None or not KERNELS.is_dir():
        pytest.skip("needs g++ and the sources")
    flags = ["-std=c++17", "-g", "-O1", "-pthread", f"-fsanitize={sanitizer}", f"-I{KERNELS}"]
    if not can_compile_and_run([compiler, *flags], tmp_path):
        pytest.skip(f"needs a compiler and a kernel that know -fsanitize={sanitizer}")
    subprocess.run([compiler, *flags, "-Wall", "-Werror", str(TESTS_FOLDER / source), "-o", str(program)], check=True)
    process = subprocess.run([program], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert "Sanitizer" not in process.stderr, process.stderr
