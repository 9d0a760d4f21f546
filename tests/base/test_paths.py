"""Reading of files at untrusted paths."""

import os
from pathlib import Path

import pytest

from caffejax.base import paths
from caffejax.base.errors import DataError


def test_files_larger_than_the_free_memory_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "list.txt"
    path.touch()
    os.truncate(path, 1 << 29)
    monkeypatch.setattr(paths, "get_free_memory", lambda: 1 << 28)
    with pytest.raises(DataError, match=r"list\.txt: cannot be read: it has 512 MiB, more than the free memory"):
        paths.read_bytes(path, DataError)
    assert paths.read_bytes(path, DataError, max_bytes=3) == bytes(3)
