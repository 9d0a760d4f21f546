"""Memory of the machine and its control groups, and sizes in words."""

from collections.abc import Callable
from pathlib import Path

import jax
import pytest

from caffejax.base.host_memory import get_memory_budget, read_group_limits
from caffejax.base.human_readable import format_bytes, parse_bytes
from caffejax.cli import main


@pytest.mark.parametrize(
    ("text", "size"), [("1000", 1000), ("8GiB", 8 << 30), ("1.5 kb", 1500), ("500MB", 500_000_000), ("2MiB", 2 << 20)]
)
def test_sizes_with_units_are_parsed(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1", "8 TiBs", "0", "much"])
def test_invalid_sizes_are_rejected(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--solver=absent", "--remat=auto", f"--memory_limit={text}"])
    assert "is not a size; give a number of bytes" in capsys.readouterr().err


def test_byte_counts_are_formatted_with_units() -> None:
    assert [format_bytes(x) for x in (1, 2048, 3 << 20, 5 << 30)] == ["1 bytes", "2 KiB", "3 MiB", "5.00 GiB"]


def write_files(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


@pytest.mark.parametrize(
    ("group", "write_group"),
    [
        ("0::/a/b", lambda top: write_files(top / "a", memory__max=1000, memory__current=400)),
        (
            "3:memory:/a",
            lambda top: write_files(top / "memory" / "a", memory__limit_in_bytes=1000, memory__usage_in_bytes=400),
        ),
    ],
)
def test_limits_are_read_from_control_groups(tmp_path: Path, group: str, write_group: Callable[[Path], None]) -> None:
    (tmp_path / "own").write_text(group)
    write_files(tmp_path, memory__max="max", memory__current=500)
    write_group(tmp_path)
    for group_folder in tmp_path.rglob("a"):
        write_files(group_folder, memory__stat="anon 1\ninactive_file 50")
    assert list(read_group_limits(tmp_path, tmp_path / "own")) == [(1000, 650)]
    assert list(read_group_limits(tmp_path, tmp_path / "absent")) == []


def test_the_memory_budget_of_a_cpu_is_plausible() -> None:
    assert 10**6 < get_memory_budget(jax.devices("cpu")[0]) < 10**15
