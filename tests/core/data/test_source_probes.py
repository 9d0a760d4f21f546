"""What each kind of data reads when the graph is built, when its source is opened, and for the first batch."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import h5py
import numpy as np
import pytest

from caffejax import Net
from caffejax.base.databases import LevelDb, Lmdb, write_leveldb, write_lmdb
from caffejax.base.errors import DataError, GraphError

_open_listeners: list[Callable[[Any], None]] = []  # what notes a file as opened, or none: a hook cannot be removed
sys.addaudithook(lambda event, args: _open_listeners[0](args[0]) if _open_listeners and event == "open" else None)


class StageEvents(NamedTuple):
    """The files read until the net was built, then until its source was open, then for the first batch."""

    build: list[str]
    open: list[str]
    batch: list[str]


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of files as they are opened, and the ranges of records as they are read, of this test's folder."""
    recorded_events: list[str] = []

    def record_event(path: Any, event: str = "") -> None:
        # threads of an earlier test may still be reading ahead
        if isinstance(path, str | Path) and tmp_path in Path(path).parents:
            recorded_events.append(event or Path(path).name)

    class File(h5py.File):
        def __init__(self, name: Any, *arguments: Any, **options: Any) -> None:
            record_event(name)
            super().__init__(name, *arguments, **options)

    def record_ranges(read_range: Callable[..., Any]) -> Callable[..., Any]:
        def read(db: Any, start: int, count: int) -> Any:
            record_event(db.path, f"records {start} to {start + count - 1}")
            return read_range(db, start, count)

        return read

    monkeypatch.setattr(h5py, "File", File)
    for records in Lmdb, LevelDb:
        monkeypatch.setattr(records, "read_range", record_ranges(records.read_range))
    _open_listeners.append(record_event)
    yield recorded_events
    _open_listeners.clear()


def read_in_stages(net: str, events: list[str], **options: Any) -> StageEvents:
    """Build a net, open its one source, and read a batch."""

    def take_events() -> list[str]:
        result = events.copy()
        events.clear()
        return result

    events.clear()
    graph = Net(net, **options)
    build_events = take_events()
    [source] = graph.sources().values()
    open_events = take_events()
    next(source)
    source.close()
    return StageEvents(build_events, open_events, take_events())


@pytest.fixture
def raw_records(make_raw_datum: Callable[..., bytes]) -> list[tuple[bytes, bytes]]:
    """Thirty raw images."""
    return [(b"%03d" % i, make_raw_datum(i)) for i in range(30)]


def test_an_lmdb_is_probed_by_its_first_record(
    tmp_path: Path, data_layer_text: Callable[..., str], events: list[str], raw_records: list[tuple[bytes, bytes]]
) -> None:
    write_lmdb(tmp_path / "db", raw_records)
    stages = read_in_stages(data_layer_text(tmp_path / "db", data="backend: LMDB prefetch: 1"), events)
    assert stages.build == ["data.mdb", "records 0 to 0"]
    assert stages.open == ["data.mdb"]
    assert stages.batch[:2] == ["records 0 to 0", "records 0 to 3"]  # whether it is compressed, and a batch


def test_probing_leaves_no_database_open(
    tmp_path: Path, data_layer_text: Callable[..., str], raw_records: list[tuple[bytes, bytes]]
) -> None:
    write_lmdb(tmp_path / "db", raw_records)
    net = Net(data_layer_text(tmp_path / "db"))
    assert net.graph.layers[0].source_spec is not None
    open_files = [os.path.realpath(file) for file in Path("/proc/self/fd").iterdir()]
    assert open_files
    assert not [file for file in open_files if file.startswith(os.path.realpath(tmp_path))]


def test_a_leveldb_is_probed_by_its_first_record(
    tmp_path: Path, data_layer_text: Callable[..., str], events: list[str], raw_records: list[tuple[bytes, bytes]]
) -> None:
    write_leveldb(tmp_path / "db", raw_records)
    stages = read_in_stages(data_layer_text(tmp_path / "db", data="backend: LEVELDB prefetch: 1"), events)
    assert [event for event in stages.build if event.startswith("records")] == ["records 0 to 0"]
    assert not any(event.startswith("records") for event in stages.open)
    assert not any(event.endswith(".ldb") for event in stages.batch)  # open already
    assert stages.batch[:2] == ["records 0 to 0", "records 0 to 3"]


def test_only_the_first_keys_of_a_leveldb_are_probed(
    tmp_path: Path, data_layer_text: Callable[..., str], make_raw_datum: Callable[..., bytes]
) -> None:
    write_leveldb(tmp_path / "db", ((b"%04d" % i, make_raw_datum(i % 99)) for i in range(5000)), compress=False)
    [table] = (tmp_path / "db").glob("*.ldb")
    content = bytearray(table.read_bytes())
    content[len(content) // 2] ^= 1
    table.write_bytes(content)
    net = Net(data_layer_text(tmp_path / "db", data="backend: LEVELDB"))
    with pytest.raises(DataError, match=r"\.ldb: layer 'd' \(Data\): .*wrong checksum"):
        net.sources()


def test_the_first_good_image_is_probed_with_skip_bad(
    tmp_path: Path, data_layer_text: Callable[..., str], events: list[str], raw_records: list[tuple[bytes, bytes]]
) -> None:
    records = [(key, b"\xff" if i < 2 else value) for i, (key, value) in enumerate(raw_records)]
    write_leveldb(tmp_path / "db", records)
    stages = read_in_stages(
        data_layer_text(tmp_path / "db", data="backend: LEVELDB prefetch: 1"), events, skip_bad=True
    )
    ranges = {event for event in stages.build if event.startswith("records")}
    assert ranges == {"records 0 to 0", "records 1 to 1", "records 2 to 2"}


@pytest.fixture
def image_names(tmp_path: Path) -> list[str]:
    """Names of nine image files in the folder."""
    names = [f"{i}.png" for i in range(9)]
    for i, name in enumerate(names):
        cv2.imwrite(str(tmp_path / name), np.full((20, 20, 3), i, np.uint8))
    return names


def test_image_data_is_probed_by_its_first_image(tmp_path: Path, events: list[str], image_names: list[str]) -> None:
    (tmp_path / "list").write_text("".join(f"{name} 0\n" for name in image_names))
    net = f"""layer {{ name: "d" type: "ImageData" top: "data" top: "label" data_param {{ prefetch: 1 }}
        image_data_param {{ source: "{tmp_path}/list" batch_size: 2 }} }}"""
    stages = read_in_stages(net, events)
    assert stages.build == ["list", "0.png"]
    assert stages.open == ["list"]
    assert stages.batch[:2] == ["0.png", "1.png"]
    assert "list" not in stages.batch


def test_hdf5_data_is_probed_by_its_metadata(
    tmp_path: Path, hdf5_layer_text: Callable[..., str], events: list[str]
) -> None:
    names = ["a.h5", "b.h5", "c.h5"]
    for name in names:
        with h5py.File(tmp_path / name, "w") as file:
            file["x"] = np.zeros((1000, 2), np.float32)
    (tmp_path / "list").write_text("\n".join(names))
    stages = read_in_stages(hdf5_layer_text(tmp_path / "list", "x"), events)
    metadata_reads = [name for name in names for _ in ("its beginning", "by the library")]
    assert stages.build == ["list", *metadata_reads]  # their metadata: all wrong ones are reported at once
    assert stages.open == ["list", *metadata_reads]  # how many rows they have
    assert stages.batch == ["a.h5", "a.h5"]


@pytest.fixture
def window_file(tmp_path: Path, image_names: list[str]) -> Path:
    """A window file of nine images, with a window of either kind in each."""
    text = "".join(f"# {i}\n{name}\n3 20 20\n2\n1 0.9 1 1 9 9\n0 0.1 2 2 9 9\n" for i, name in enumerate(image_names))
    (tmp_path / "windows").write_text(text)
    return tmp_path / "windows"


def window_net_text(window_file: Path) -> str:
    return f"""layer {{ name: "d" type: "WindowData" top: "data" top: "label" transform_param {{ crop_size: 8 }}
        data_param {{ prefetch: 1 }}
        window_data_param {{ source: "{window_file}" root_folder: "{window_file.parent}/" batch_size: 4 }} }}"""


def test_a_window_file_is_probed_up_to_its_first_image(
    events: list[str], window_file: Path, image_names: list[str]
) -> None:
    stages = read_in_stages(window_net_text(window_file), events)
    assert stages.build == ["windows"]  # up to its first image
    assert stages.open == ["windows"]
    assert set(stages.batch) <= set(image_names)
    assert len(stages.batch) >= 4


def test_only_the_first_image_of_a_window_file_is_probed(window_file: Path) -> None:
    lines = window_file.read_text().splitlines()
    window_file.write_text("\n".join([*lines[:-1], "0 0.1 2 two 9 9"]))
    net = Net(window_net_text(window_file))
    with pytest.raises(DataError, match=r"windows:54: layer 'd' \(WindowData\): .*'two' is unexpected here"):
        net.sources()
    window_file.write_text("\n".join([lines[0], "none.png", *lines[2:]]))
    with pytest.raises(GraphError, match=r"there is no image '.*none.png'"):
        Net(window_net_text(window_file))
    window_file.unlink()
    with pytest.raises(GraphError, match=r"layer 'd' \(WindowData\): the window file cannot be read: No such file"):
        Net(window_net_text(window_file))
