"""Checksums of arrays: independent of an array's memory, and different if any number changes."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from caffejax.base.errors import WeightsError
from caffejax.core.checkpoints import orbax
from caffejax.core.checkpoints.orbax import CheckpointFolder, compute_checksums, compute_crc32_checksums

RNG = np.random.default_rng(0)
ARRAYS = {
    "float32": RNG.normal(size=(7, 3, 5)).astype(np.float32),
    "float64": RNG.normal(size=(4, 3)),
    "float16": RNG.normal(size=6).astype(np.float16),
    "uint32": RNG.integers(0, 2**32, 9, np.uint32),
    "bool": RNG.random(11) < 0.5,
    "one number": np.array(3.5, np.float32),
    "none": np.zeros((0, 4), np.float32),
    "transposed": RNG.normal(size=(5, 8)).astype(np.float32).T,
}


def reference_checksum(array: np.ndarray) -> int:
    """The sum that the module's docstring speaks of, in Python's whole numbers."""
    size = min(array.dtype.itemsize, 4)
    data = array.tobytes()
    numbers = [int.from_bytes(data[i : i + size], "little") for i in range(0, len(data), size)]
    return sum(number * ((index * 0x9E3779B1) % 2**32 | 1) for index, number in enumerate(numbers)) % 2**32


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("part_size", [4, 2**20])
def test_checksums_equal_the_reference(name: str, part_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the host, part by part; and by the program of devices, which takes large arrays."""
    monkeypatch.setattr(orbax, "_MAX_HOST_SIZE", part_size)
    expected = {"['x']": reference_checksum(ARRAYS[name])}
    assert compute_checksums({"x": ARRAYS[name]}) == expected
    if name != "float64":  # which JAX has not, by default
        assert compute_checksums({"x": jax.numpy.array(ARRAYS[name])}) == expected


@pytest.mark.parametrize("name", [name for name in ARRAYS if name != "none"])
def test_a_flipped_bit_changes_the_checksum(name: str) -> None:
    array = ARRAYS[name]
    original_checksums = compute_checksums(array)
    for _ in range(50):
        data = bytearray(array.tobytes())
        if name == "bool":
            data[RNG.integers(len(data))] ^= 1
        else:
            data[RNG.integers(len(data))] ^= 1 << int(RNG.integers(8))
        assert compute_checksums(np.frombuffer(bytes(data), array.dtype).reshape(array.shape)) != original_checksums


def test_checkpoints_with_crc32_checksums_are_read_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays: dict[str, Any] = {"params": {"ip": {"0": ARRAYS["float32"]}}, "iteration": ARRAYS["one number"]}

    def save(step: int, checksummed_arrays: Any) -> None:
        def add_crc32_checksums(record: Any, sums: Any, add_checksums: Any = orbax.add_checksums) -> Any:
            return add_checksums(record, compute_crc32_checksums(checksummed_arrays), "arrays")

        with monkeypatch.context() as patch:
            patch.setattr(orbax, "add_checksums", add_crc32_checksums)
            folder = CheckpointFolder(tmp_path / "x.orbax")
            folder.save(step, arrays, {"a": 1})
            folder.close()

    save(1, arrays)
    restored, record = CheckpointFolder(tmp_path / "x.orbax").restore()
    assert record == {"a": 1}
    np.testing.assert_array_equal(restored["params"]["ip"]["0"], ARRAYS["float32"])
    save(2, {**arrays, "iteration": np.float32(3)})
    with pytest.raises(WeightsError, match=r"step 2 is damaged: .*; step 1 is the newest good one"):
        CheckpointFolder(tmp_path / "x.orbax").restore()
