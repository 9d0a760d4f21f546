"""HDF5 files with external links or false sizes are refused: data, weights and solver states."""

import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from caffejax.base.errors import CaffejaxError, DataError
from caffejax.base.untrusted_hdf5 import RefusedError, SizeLimit, find_item, open_hdf5_file
from caffejax.core.checkpoints.caffemodel import read_caffemodel
from caffejax.core.checkpoints.solverstate import read_solverstate

GIB = 2**30


def add_soft_link(group: h5py.Group, name: str, target: str) -> None:
    group[name] = h5py.SoftLink(target)


def add_link_to_pipe(group: h5py.Group, name: str) -> None:
    """A link into a pipe: whoever opens it waits for ever."""
    os.mkfifo(f"{group.file.filename}.fifo")
    group[name] = h5py.ExternalLink(f"{group.file.filename}.fifo", "/x")


def add_link_to_link(group: h5py.Group, name: str) -> None:
    add_link_to_pipe(group, "door")
    add_soft_link(group, name, "door/x")


def add_circular_link(group: h5py.Group, name: str) -> None:
    add_soft_link(group, name, "other")
    add_soft_link(group, "other", name)


def add_external_dataset(group: h5py.Group, name: str) -> None:
    group.create_dataset(name, (4, 2), "f4", external=[("/etc/passwd", 0, 32)])


def add_virtual_dataset(group: h5py.Group, name: str) -> None:
    layout = h5py.VirtualLayout((4, 2), "f4")
    layout[:] = h5py.VirtualSource("/etc/passwd", "x", (4, 2))
    group.create_virtual_dataset(name, layout)


def add_compressed_dataset(group: h5py.Group, name: str) -> None:
    dataset = group.create_dataset(name, (4, GIB // 2), "f4", chunks=(1, 2**20), compression="gzip")
    dataset[0, :10] = 1


def add_filled_dataset(group: h5py.Group, name: str) -> None:
    dataset = group.create_dataset(name, (4, GIB // 2), "f4", chunks=(1, 2**10), fillvalue=7)
    dataset[0, :10] = 1


def add_huge_dataset(group: h5py.Group, name: str) -> None:
    dataset = group.create_dataset(name, (4, 2**44), "f4", chunks=(1, 2**10))
    dataset[0, :10] = 1


def add_large_chunk(group: h5py.Group, name: str) -> None:
    """Few numbers, of a chunk that is allocated whole. It is not written: that would allocate it, too."""
    group.create_dataset(name, (4, 2), "f4", chunks=(2**15, 2**14), maxshape=(None, None), compression="gzip")


BAD_LINKS: dict[str, tuple[Callable[[h5py.Group, str], None], str]] = {
    "broken": (lambda group, name: add_soft_link(group, name, "/no/where"), "is a broken link"),
    "circular": (add_circular_link, "is a circular link"),
    "to itself": (lambda group, name: add_soft_link(group, name, name), "is a circular link"),
    "another file": (add_link_to_pipe, "is a link to another file, which is not followed"),
    "through another file": (add_link_to_link, "is a link to another file, which is not followed"),
}
BAD_DATASETS: dict[str, tuple[Callable[[h5py.Group, str], None], str]] = {
    "external values": (add_external_dataset, "stores its values in other files, which are not read"),
    "virtual": (add_virtual_dataset, "stores its values in other files, which are not read"),
    "compressed": (
        add_compressed_dataset,
        r"takes 8.00 GiB, of which [\d.]+ (KiB|bytes) are in the file, but at most 2.00 GiB more may",
    ),
    "fill value": (
        add_filled_dataset,
        "takes 8.00 GiB, of which 4 KiB are in the file, but at most 2.00 GiB more may be unpacked",
    ),
    "beyond memory": (add_huge_dataset, "takes 256.00 TiB, but the machine has only .* of memory"),
    "large chunk": (
        add_large_chunk,
        "takes 2.00 GiB, of which 0 bytes are in the file, but at most 2.00 GiB more may be unpacked",
    ),
}


def write_weights(path: Path, add_object: Callable[[h5py.Group, str], None]) -> None:
    with h5py.File(path, "w") as file:
        group = file.create_group("data/ip")
        add_object(group, "0")


def write_state(path: Path, add_object: Callable[[h5py.Group, str], None]) -> None:
    with h5py.File(path, "w") as file:
        file["iter"] = [3]
        add_object(file.create_group("history"), "0")


@pytest.fixture(autouse=True)
def small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("caffejax.base.untrusted_hdf5.get_total_memory", lambda: 100 * GIB)


@pytest.fixture
def read_data(open_source: Any, hdf5_layer_text: Any, tmp_path: Path) -> Callable[..., Any]:
    """Writes a file of data and labels, and reads a batch of it."""

    def read(add_object: Callable[[h5py.Group, str], None], **options: Any) -> Any:
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file["data"] = np.arange(8.0).reshape(4, 2)
            add_object(file, "label")
        (tmp_path / "list").write_text(str(tmp_path / "x.h5"))
        return next(open_source(hdf5_layer_text(tmp_path / "list", "data label"), **options))

    return read


@pytest.mark.parametrize("case", [*BAD_LINKS, *BAD_DATASETS])
def test_bad_links_and_datasets_in_data_are_refused(read_data: Any, case: str) -> None:
    add_object, message = (BAD_LINKS | BAD_DATASETS)[case]
    memory_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DataError, match=message) as exc_info:
        read_data(add_object, max_hdf5_bytes=2**31 - 1 if case == "large chunk" else 2**31)
    assert "x.h5: layer 'd' (HDF5Data): " in str(exc_info.value)
    if "more may be unpacked" in message:
        assert "raise max_hdf5_bytes (--max_hdf5_bytes), or store it without compression" in str(exc_info.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory_before < 200_000  # KiB


@pytest.mark.parametrize("case", [case for case in BAD_DATASETS if case != "large chunk"])
@pytest.mark.parametrize(("write", "read"), [(write_weights, read_caffemodel), (write_state, read_solverstate)])
def test_bad_datasets_in_weights_and_states_are_refused(write: Any, read: Any, case: str, tmp_path: Path) -> None:
    add_object, message = BAD_DATASETS[case]
    write(tmp_path / "x.h5", add_object)
    with pytest.raises(CaffejaxError, match=f"x.h5: .*{message}|has a shape but no values") as exc_info:
        read(tmp_path / "x.h5")
    assert "max_hdf5_bytes" not in str(exc_info.value)


@pytest.mark.parametrize("case", BAD_LINKS)
def test_links_in_weights_and_states_are_not_followed(case: str, tmp_path: Path) -> None:
    add_object, message = BAD_LINKS[case]
    write_weights(tmp_path / "w.h5", add_object)
    assert read_caffemodel(tmp_path / "w.h5") == {}
    with h5py.File(tmp_path / "top.h5", "w") as file:
        add_object(file, "data")
    with pytest.raises(CaffejaxError, match=f"top.h5: .*{message}"):
        read_caffemodel(tmp_path / "top.h5")
    with h5py.File(tmp_path / "state.h5", "w") as file:
        file.create_group("history")
        add_object(file, "iter")
    with pytest.raises(CaffejaxError, match=f"state.h5: .*{message}"):
        read_solverstate(tmp_path / "state.h5")


def test_links_within_a_file_are_followed(read_data: Any) -> None:
    def add_object(file: h5py.File, name: str) -> None:
        file["deep/er/y"] = [5.0, 6, 7, 8]
        add_soft_link(file, name, "/deep/again/y")
        add_soft_link(file["deep"], "again", "er")

    _, label = read_data(add_object)
    assert label.tolist() == [5, 6, 7, 8]


def test_compressed_data_within_the_limit_is_read(read_data: Any) -> None:
    def add_object(file: h5py.File, name: str) -> None:
        file.create_dataset(name, data=np.zeros((4, 1000)), compression="gzip")

    assert read_data(add_object)[1].shape == (4, 1000)
    assert read_data(add_object, max_hdf5_bytes=32000)[1].shape == (4, 1000)
    with pytest.raises(DataError, match=r"data set '/label' of shape \(4, 1000\) takes 31.25 KiB"):
        read_data(add_object, max_hdf5_bytes=30000)


def test_unpacked_sizes_of_a_file_add_up(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for name in "abc":
            file.create_dataset(name, data=np.zeros(1000, "f4"), compression="gzip")
        size_limit = SizeLimit(file, 8000)
        size_limit.check(file["a"])
        size_limit.check(file["b"])
        with pytest.raises(RefusedError, match="'/c'"):
            size_limit.check(file["c"])


def test_objects_are_found_by_any_form_of_their_path(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["a/b"] = 3
        assert find_item(file, "none") is None
        assert find_item(file, "a/b/c") is None
        assert find_item(file, "a//./b")[()] == 3  # type: ignore[index]


@pytest.mark.parametrize("userblock_size", [0, 512])
def test_a_multi_file_hdf5_is_refused_before_hdf5_allocates_its_claimed_size(
    userblock_size: int, tmp_path: Path
) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver="earliest", userblock_size=userblock_size) as file:
        file["a"] = [1.0]
    content = bytearray(path.read_bytes())
    open_hdf5_file(path).close()
    assert content[userblock_size + 48 : userblock_size + 56] == b"\xff" * 8  # the address of driver information
    content[userblock_size + 48 : userblock_size + 56] = (26).to_bytes(8, "little")
    path.write_bytes(content)
    with pytest.raises(RefusedError, match="is one of several files"):
        open_hdf5_file(path)
