"""Invalid files of named arrays raise one clear error, without allocating the sizes that they state."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from caffejax.base.errors import WeightsError
from caffejax.core.checkpoints.array_files import read_npz


def encode_npy(array: object, **header_changes: object) -> bytes:
    """An .npy file, its head with some entries changed."""
    file = io.BytesIO()
    data = np.asarray(array)
    np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(data) | header_changes)
    return file.getvalue() + (b"" if data.dtype.hasobject else data.tobytes())


def make_zip(path: Path, compression: int = zipfile.ZIP_STORED, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return path


def make_encrypted_zip(path: Path) -> Path:
    content = bytearray(make_zip(path, a=encode_npy([1.0])).read_bytes())
    for signature, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        content[content.index(signature) + flags] |= 1
    path.write_bytes(content)
    return path


def write_npy(path: Path) -> Path:
    path.write_bytes(encode_npy([1.0]))
    return path


INVALID_FILES = {
    "it is encrypted": make_encrypted_zip,
    "NumPy does not write compression type 12": lambda path: make_zip(path, zipfile.ZIP_BZIP2, a=encode_npy([1.0])),
    "NumPy does not write compression type 14": lambda path: make_zip(path, zipfile.ZIP_LZMA, a=encode_npy([1.0])),
    "the magic string is not correct": lambda path: make_zip(path, a=b"no array at all"),
    "EOF: reading magic string": lambda path: make_zip(path, a=b""),
    r"takes 4000000000000 bytes, but there are 8": lambda path: make_zip(
        path, a=encode_npy([1.0], shape=(10**6, 500_000))
    ),
    r"takes 8 bytes, but there are 24": lambda path: make_zip(path, a=encode_npy([1.0, 2, 3], shape=(1,))),
    r"shape \(-1,\)": lambda path: make_zip(path, a=encode_npy([1.0], shape=(-1,))),
    "holds Python objects": lambda path: make_zip(path, a=encode_npy([None])),
    "it contains one array, as an .npy file does; write it with np.savez": write_npy,
}


@pytest.mark.parametrize("message", INVALID_FILES)
def test_invalid_files_are_reported(message: str, tmp_path: Path) -> None:
    path = INVALID_FILES[message](tmp_path / "a.npz")
    with pytest.raises(WeightsError, match=message) as exc_info:
        read_npz(path)
    assert str(path) in str(exc_info.value)


def test_all_invalid_members_are_reported_together(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "a.npz", first=b"", good=encode_npy([1.0]), second=b"x" * 40)
    with pytest.raises(WeightsError) as exc_info:
        read_npz(path)
    assert [problem.message.split("'")[1] for problem in exc_info.value.problems] == ["first.npy", "second.npy"]


def test_a_decompression_bomb_is_refused_before_decoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_zip(tmp_path / "a.npz", zipfile.ZIP_DEFLATED, a=encode_npy(np.zeros(1 << 20)))
    assert path.stat().st_size < 20_000
    assert read_npz(path)["a"].nbytes == 1 << 23
    monkeypatch.setattr("caffejax.core.checkpoints.array_files.get_free_memory", lambda: 1 << 22)
    with pytest.raises(WeightsError, match="its arrays need 8 MiB, but only 4 MiB of memory are free"):
        read_npz(path)


@given(
    arrays.arrays(
        st.sampled_from(["<f4", ">f8", "<i8", "u1", "?", "<f2", "<U5"]), arrays.array_shapes(min_dims=0, min_side=0)
    ),
    st.booleans(),
)
def test_files_written_by_numpy_are_read(tmp_path_factory, array: np.ndarray, is_column_major: bool) -> None:
    path = tmp_path_factory.mktemp("npz") / "a.npz"
    stored = np.asarray(array, order="F" if is_column_major else "C")
    for write in (np.savez, np.savez_compressed):
        write(path, first=stored, other=stored[..., :0] if array.ndim else stored)
        result = read_npz(path)
        np.testing.assert_array_equal(result["first"], array)
        assert (result["first"].dtype, result["first"].shape) == (array.dtype, array.shape)
