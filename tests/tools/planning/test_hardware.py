"""Planning targets: chips by name and from files, their numbers of devices, and errors."""

from dataclasses import fields
from pathlib import Path

import pytest

from caffejax import CaffejaxError
from caffejax.tools.planning import parse_target
from caffejax.tools.planning.hardware import CHIPS, Chip


@pytest.mark.parametrize(
    ("text", "shape", "devices"),
    [
        ("tpu:v5e:2x2", (2, 2), 4),
        ("tpu:v4:2x2x1", (2, 2, 1), 8),
        ("cuda:h100:4", (4,), 4),
        ("CUDA:A100:1", (1,), 1),
        ("tpu:v6e:16x16", (16, 16), 256),
    ],
)
def test_targets_are_parsed(text: str, shape: tuple[int, ...], devices: int) -> None:
    target = parse_target(text)
    assert (target.shape, target.devices, str(target)) == (shape, devices, text.lower())


@pytest.mark.parametrize("name", CHIPS)
def test_data_sheets_are_plausible(name: str) -> None:
    chip = CHIPS[name]
    assert name == f"{chip.platform}:{chip.name}"
    assert chip.bfloat16 >= 2 * chip.tf32 * 0.99 > 0
    assert chip.tf32 >= chip.float32
    assert 1e9 < chip.network < chip.link < chip.bandwidth < 1e13
    assert chip.joined % 8 == 0
    assert 8 * 2**30 <= chip.memory <= 256 * 2**30
    assert bool(chip.compiler) == (chip.platform == "cuda")


def test_a_chip_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('like = "cuda:h100"\nname = "h100-pcie"\nmemory = 8.5e10\n[compiler]\ncore_count = 114\n')
    chip = parse_target(f"{file}:2").chip
    assert (chip.name, chip.memory, chip.compiler["core_count"]) == ("h100-pcie", 8.5e10, 114)
    assert (chip.bandwidth, chip.compiler["major"]) == (CHIPS["cuda:h100"].bandwidth, 9)
    numbers = "\n".join(
        f"{f.name} = 1e12" for f in fields(Chip) if f.name in Chip.__annotations__ and f.type == "float"
    )
    file.write_text(f'platform = "tpu"\nname = "v7"\n{numbers}\n')
    assert parse_target(f"{file}:2x2").chip.peak("bfloat16") == 1e12


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tpu", "is not a target; examples of targets are"),
        ("tpu:v5e", "is not a target"),
        ("tpu:v5e:0x2", "is not a target"),
        ("tpu:v5e:2x", "is not a target"),
        ("tpu:v5e:-1", "is not a target"),
        ("tpu:v5e:99999999", "is not a target"),
        ("tpu:v5:2x2", "no chip is called 'tpu:v5'; did you mean"),
        ("cuda:h100:2x2", "GPUs have no topology; set only their number: cuda:h100:4"),
        ("nowhere.toml:4", "No such file"),
    ],
)
def test_invalid_targets_are_refused(text: str, message: str) -> None:
    with pytest.raises(CaffejaxError, match=message):
        parse_target(text)


@pytest.mark.parametrize(
    ("content", "messages"),
    [
        ("{", ["nvalid"]),
        ('name = "x"', ["lacks the fields platform, memory"]),
        ('like = "tpu:v9"', ["like must be one of"]),
        (
            'like = "cuda:h100"\nmemory = "80 GB"\nbandwith = 3',
            ["memory must be a positive number", "did you mean 'bandw"],
        ),
        ('like = "cuda:h100"\nmemory = true', ["memory must be a positive number"]),
        ('like = "cuda:h100"\nname = "a } b"', ["name must be a non-empty string"]),
        ('like = "cuda:h100"\n[compiler]\n"} x" = 1', ["compiler must be a table of names and numbers"]),
        ('like = "tpu:v5e"\nplatform = "rocm"\ncores = 0', ["platform must be tpu or cuda", "cores must be"]),
        ('like = "tpu:v5e"\njoined = 0.5\nnetwork = -1', ["joined must be", "network must be a positive number"]),
    ],
)
def test_all_problems_of_a_chip_file_are_reported(tmp_path: Path, content: str, messages: list[str]) -> None:
    file = tmp_path / "chip.toml"
    file.write_text(content)
    with pytest.raises(CaffejaxError) as exc_info:
        parse_target(f"{file}:1")
    for message in messages:
        assert message in str(exc_info.value)
    assert "chip.toml" in str(exc_info.value)
