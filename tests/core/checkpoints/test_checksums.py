"""Checksums of arrays: independent of an array's memory, and different if any number changes."""

import os
from contextlib import closing
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from caffejax.core.checkpoints import orbax
from caffejax.core.checkpoints.orbax import CheckpointFolder, DamagedStepError, compute_checksums

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
@pytest.mark.parametrize("block_size", [4, 2**20])
def test_checksums_equal_the_reference(name: str, block_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the host, block by block; and by the program of devices, which takes the arrays of several processes."""
    monkeypatch.setattr(orbax, "_BLOCK_SIZE", block_size)
    expected = reference_checksum(ARRAYS[name])
    assert compute_checksums({"x": ARRAYS[name]}) == {"['x']": expected}
    if name != "float64":  # which JAX has not, by default
        assert compute_checksums({"x": jax.numpy.array(ARRAYS[name])}) == {"['x']": expected}
        assert int(orbax._sum_on_devices(jax.numpy.array(ARRAYS[name]))) == expected


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


def test_orbax_alone_reads_flipped_bits_as_other_numbers(tmp_path: Path) -> None:
    """The reason for the checksums: if this fails because orbax notices each of them, they are superfluous."""
    arrays = {"params": {"ip": {"weight": RNG.normal(size=(40, 50)).astype(np.float32)}}}
    path = tmp_path / "x.orbax"
    with closing(CheckpointFolder(path)) as folder:
        for step in 1, 2:
            folder.save(step, arrays, {"a": 1})
    largest_file = max((p for p in (path / "2").rglob("*") if p.is_file()), key=os.path.getsize)
    original, read_by_orbax = largest_file.read_bytes(), []
    for position in range(3500, 5000, 150):
        data = bytearray(original)
        data[position] ^= 1
        largest_file.write_bytes(data)
        with closing(CheckpointFolder(path)) as folder:
            with pytest.raises(DamagedStepError, match=r"x\.orbax: step 1 is the newest good one; step 2 is damaged: "):
                folder.restore()
            restored, record = folder.restore(1)
            assert record == {"a": 1}
            np.testing.assert_array_equal(restored["params"]["ip"]["weight"], arrays["params"]["ip"]["weight"])
        read_by_orbax.append(ocp.StandardCheckpointer().restore(path / "2" / "arrays")["params"]["ip"]["weight"])
    assert all((weight != arrays["params"]["ip"]["weight"]).any() for weight in read_by_orbax)
