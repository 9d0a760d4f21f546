"""Shares of the data: several readers of some of the batches each are one reader of all."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import cv2
import h5py
import numpy as np
import pytest

from caffejax import Net
from caffejax.config import DataConfig, DataShard
from caffejax.data import Batch, Batches, write_leveldb, write_lmdb
from caffejax.data.loader import Loader
from caffejax.errors import DataError

EXAMPLES = 13
SIZE = 3  # examples in a batch
COUNTS = [(1,), (1, 1), (2, 1), (3, 5)]  # of the shards: how many batches of each round they have
KINDS = ["LMDB", "LEVELDB", "HDF5", "HDF5 shuffled", "ImageData", "WindowData", "Python"]

Arrays = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, raw_datum: Callable[..., bytes]) -> Path:
    """Thirteen examples with labels 0 to 12, of each kind."""
    path = tmp_path_factory.mktemp("shards")
    records = [(b"%03d" % i, raw_datum(i)) for i in range(EXAMPLES)]
    write_lmdb(path / "lmdb", records)
    write_leveldb(path / "leveldb", records)
    for name, rows in (("a", range(5)), ("b", range(5, 7)), ("c", range(7, 13))):
        with h5py.File(path / f"{name}.h5", "w") as file:
            file["data"] = np.array([[row, -row] for row in rows], np.float32)
            file["label"] = np.array(rows)
    (path / "files.txt").write_text("a.h5\nb.h5\nc.h5\n")
    for i in range(EXAMPLES):
        pixels = np.random.default_rng(i).integers(0, 256, (8, 9, 3), np.uint8)
        cv2.imwrite(str(path / f"{i}.png"), pixels)
    (path / "images.txt").write_text("".join(f"{i}.png {i}\n" for i in range(EXAMPLES)))
    window = "# {0}\n{0}.png\n3\n8\n9\n2\n{1} 1.0 1 0 7 6\n0 0.1 0 2 5 7\n"
    (path / "windows.txt").write_text("".join(window.format(i, 1 + i) for i in range(EXAMPLES)))
    return path


def net_of(kind: str, folder: Path, size: int = SIZE, name: str = "d", tops: Sequence[str] = ("data", "label")) -> str:
    """The text of a net with one data layer."""
    random = "transform_param { crop_size: 5 mirror: true }"
    field, params, transform_param = {
        "LMDB": ("data_param", f'source: "{folder / "lmdb"}" backend: LMDB prefetch: 2', random),
        "LEVELDB": ("data_param", f'source: "{folder / "leveldb"}" backend: LEVELDB', random),
        "HDF5": ("hdf5_data_param", f'source: "{folder / "files.txt"}"', ""),
        "HDF5 shuffled": ("hdf5_data_param", f'source: "{folder / "files.txt"}" shuffle: true', ""),
        "ImageData": ("image_data_param", f'source: "{folder / "images.txt"}" shuffle: true rand_skip: 5', random),
        "WindowData": ("window_data_param", f'source: "{folder / "windows.txt"}" fg_fraction: 0.4', random),
        "Python": ("python_param", 'module: "python_rows" layer: "Rows"', ""),
    }[kind]
    batch_size = "" if kind == "Python" else f"batch_size: {size}"
    layer_type = {"LMDB": "Data", "LEVELDB": "Data"}.get(kind, kind.split()[0] + "Data" * kind.startswith("HDF5"))
    top_fields = " ".join(f'top: "{top}"' for top in tops)
    message = f"{field} {{ {params} {batch_size} }}"
    return f'layer {{ name: "{name}" type: "{layer_type}" {top_fields} {transform_param} {message} }}'


def shards(counts: Sequence[int]) -> list[DataShard]:
    """Return consecutive shards with these counts, which together are all batches."""
    firsts = itertools.accumulate(counts, initial=0)
    return [DataShard(first, count, sum(counts)) for first, count in zip(firsts, counts, strict=False)]


@pytest.fixture
def open_loader() -> Iterator[Callable[..., Loader]]:
    """Opens what feeds a net, by options of reading; closes it."""
    with ExitStack() as stack:

        def open_net(text: str, **reading: Any) -> Loader:
            net = Net(text, "TRAIN", data_config=DataConfig(**{"seed": 7, **reading}))
            return stack.enter_context(closing(Loader(net.graph)))

        yield open_net


def equal_batches(batch: Arrays, other: Arrays) -> bool:
    return batch.keys() == other.keys() and all(np.array_equal(batch[name], other[name]) for name in batch)


def check_takes(
    all_batches: list[Arrays], readers: list[tuple[DataShard, Loader]], takes: Sequence[int], first: int = 0
) -> None:
    """Check that readers of all shards give what one gives: batch i of `whole` has number `first + i`."""
    taken_count = 0
    for n in takes:
        taken = [(shard, loader.take(n)) for shard, loader in readers]
        numbers = range(first + taken_count, first + taken_count + n)
        for shard, batches in taken:
            expected = [i for i in numbers if shard.first <= i % shard.total < shard.first + shard.count]
            assert len(batches) == len(expected)
            for i, batch in zip(expected, batches, strict=True):
                assert equal_batches(batch, all_batches[i - first]), f"{shard}: batch {i}"
        assert sum(len(batches) for _, batches in taken) == n
        taken_count += n
    assert taken_count <= len(all_batches)


class RecordingBatches:
    """Batches that note which were read."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self.starts: list[int] = []

    def read(self, start: int) -> Batch:
        self.starts.append(start)
        return self._batches.read(start)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)


def record_reads(loader: Loader) -> RecordingBatches | None:
    """Watch what the one source of a net reads; None of a Python layer."""
    [source] = loader._sources.values()
    if not hasattr(source, "_batches"):
        return None
    source._batches = recorder = RecordingBatches(source._batches)
    return recorder


@pytest.mark.parametrize("counts", COUNTS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_all_shards_together_read_what_one_reader_reads(
    open_loader: Callable[..., Loader], folder: Path, kind: str, counts: tuple[int, ...]
) -> None:
    text, total = net_of(kind, folder), sum(counts)
    takes = [total, 2 * total, 7, 3, 1, total]
    only_reader = open_loader(text)
    all_batches = [next(only_reader) for _ in range(sum(takes))]
    assert not equal_batches(all_batches[0], all_batches[1])
    readers = [(shard, open_loader(text, shard=shard)) for shard in shards(counts)]
    recorders = [record_reads(loader) for _, loader in readers]
    check_takes(all_batches, readers, takes)
    assert all(loader.get_state() == only_reader.get_state() for _, loader in readers)
    assert only_reader.get_state() == {"d": {"at" if kind == "Python" else "examples": SIZE * sum(takes)}}
    for (shard, _), recorder in zip(readers, recorders, strict=True):
        if recorder is not None:
            assert {start % SIZE for start in recorder.starts} == {0}
            turns = {start // SIZE % total for start in recorder.starts}
            assert turns == set(range(shard.first, shard.first + shard.count)), "what is not the shard's was read"
            assert len(recorder.starts) == len(set(recorder.starts)), "a batch was read twice"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "WindowData"])  # that one draws at random
def test_no_example_comes_twice_in_a_round(open_loader: Callable[..., Loader], folder: Path, kind: str) -> None:
    readers = [open_loader(net_of(kind, folder, 1), shard=shard) for shard in shards((2, 1))]
    taken = [loader.take(39) for loader in readers]
    if kind == "Python":  # its batches are of 3: three rounds are 13 batches
        taken = [loader[:count] for loader, count in zip(taken, (9, 4), strict=True)]
    labels = [int(label) for batches in taken for batch in batches for label in batch["label"]]
    assert sorted(labels) == sorted([*range(EXAMPLES)] * 3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("old_counts", "new_counts"), [((2, 1), (1, 1)), ((1,), (3, 5)), ((3, 5), (1,)), ((1, 1), (2, 1))]
)
def test_a_position_restores_onto_other_shards(
    open_loader: Callable[..., Loader],
    folder: Path,
    kind: str,
    old_counts: tuple[int, ...],
    new_counts: tuple[int, ...],
) -> None:
    text, taken_count = net_of(kind, folder), 11  # of no number of shards a multiple
    only_reader = open_loader(text)
    all_batches = [next(only_reader) for _ in range(taken_count + 30)]
    states = []
    for shard in shards(old_counts):
        loader = open_loader(text, shard=shard)
        loader.take(taken_count)
        states.append(loader.get_state())
    assert all(state == states[0] for state in states)
    readers = [(shard, open_loader(text, shard=shard)) for shard in shards(new_counts)]
    for _, loader in readers:
        loader.take(5)  # and back
        loader.set_state(states[0])
    # a Python layer tells no number: counted from there
    first = 0 if kind == "Python" else taken_count
    check_takes(all_batches[taken_count:], readers, [sum(new_counts), 5, 1, sum(new_counts)], first)


@pytest.mark.parametrize("kind", ["LMDB", "HDF5 shuffled"])
@pytest.mark.parametrize("examples", [0, 1, 8, 12, 30])
def test_a_position_of_another_batch_size_is_restored(
    open_loader: Callable[..., Loader], folder: Path, kind: str, examples: int
) -> None:
    text = net_of(kind, folder, 4)
    only_reader = open_loader(text)
    only_reader.set_state({"d": {"examples": examples}})
    all_batches = [next(only_reader) for _ in range(12)]
    readers = [(shard, open_loader(text, shard=shard)) for shard in shards((2, 1))]
    for _, loader in readers:
        loader.set_state({"d": {"examples": examples}})
    check_takes(all_batches, readers, [3, 2, 1, 6], examples // 4)
    assert {loader.get_state()["d"]["examples"] for _, loader in readers} == {examples + 48}


@pytest.mark.parametrize("kinds", [("LMDB", "WindowData"), ("Python", "ImageData"), ("ImageData", "Python")])
def test_layers_that_stand_at_different_places_stay_together(
    open_loader: Callable[..., Loader], folder: Path, kinds: tuple[str, str]
) -> None:
    """For example, training continues with an additional data layer that the checkpoint does not contain."""
    text = net_of(kinds[0], folder) + net_of(kinds[1], folder, 2, "e", ("more", "kind"))
    position = {"d": {"at": 15} if kinds[0] == "Python" else {"examples": 15}}  # 5 batches
    only_reader = open_loader(text)
    only_reader.set_state(position)
    all_batches = [next(only_reader) for _ in range(20)]
    readers = [(shard, open_loader(text, shard=shard)) for shard in shards((1, 2))]
    for _, loader in readers:
        loader.take(4)
        loader.set_state(position | {"e": {"at": 0, "examples": 0}})
    check_takes(all_batches, readers, [3, 4, 2, 6], 0 if kinds[0] == "Python" else 5)
    assert len({str(loader.get_state()) for _, loader in readers}) == 1


@pytest.mark.slow
def test_worker_processes_read_shards(open_loader: Callable[..., Loader], folder: Path) -> None:
    text = net_of("LMDB", folder)
    only_reader = open_loader(text)
    all_batches = [next(only_reader) for _ in range(14)]
    # one shard is read without processes: each process takes more than a second to start
    readers = [
        (shard, open_loader(text, shard=shard, workers=n)) for shard, n in zip(shards((1, 1)), (0, 2), strict=True)
    ]
    check_takes(all_batches, readers, [2, 4, 3, 2])
    for _, loader in readers:
        loader.set_state({"d": {"examples": 5 * SIZE}})
    check_takes(all_batches[5:], readers, [2, 3], 5)


@pytest.mark.parametrize("kind", KINDS)
def test_next_returns_the_batches_of_the_shard_one_by_one(
    open_loader: Callable[..., Loader], folder: Path, kind: str
) -> None:
    text = net_of(kind, folder)
    only_reader = open_loader(text)
    all_batches = [next(only_reader) for _ in range(12)]
    loader = open_loader(text, shard=DataShard(1, 2, 4))
    for i in (1, 2, 5, 6, 9, 10):
        assert equal_batches(next(loader), all_batches[i])


def test_a_python_layer_runs_for_every_batch_and_keeps_its_shard(
    open_loader: Callable[..., Loader], folder: Path
) -> None:
    loader = open_loader(net_of("Python", folder), shard=DataShard(1, 1, 4))
    rows = loader._graph.layers[0].type.instance
    assert [batch["data"][0, 0] for batch in loader.take(9)] == [3, 15]
    assert rows.batches == 9


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("WindowData", "Python")])
@pytest.mark.parametrize("n", [2, 3])
def test_batches_of_several_devices_are_one_batch_of_all(
    open_loader: Callable[..., Loader], folder: Path, kind: str, n: int
) -> None:
    """The batches of n devices, concatenated along the first axis, equal a batch that is n times as large."""
    large, small = (
        open_loader(net_of(kind, folder, n * SIZE)),
        open_loader(net_of(kind, folder), shard=DataShard(0, n, n)),
    )
    for _ in range(6):
        batches = small.take(n)
        joint = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
        assert equal_batches(joint, next(large))


def test_errors_of_a_batch_are_raised_by_its_owner(open_loader: Callable[..., Loader], tmp_path: Path) -> None:
    for i in range(6):
        cv2.imwrite(str(tmp_path / f"{i}.png"), np.full((4, 4, 3), i, np.uint8))
    (tmp_path / "3.png").write_bytes(b"no image")
    (tmp_path / "list.txt").write_text("".join(f"{i}.png {i}\n" for i in range(6)))
    text = f"""layer {{ name: "d" type: "ImageData" top: "data" top: "label"
        image_data_param {{ source: "{tmp_path / "list.txt"}" batch_size: 1 }} }}"""
    first, second = (open_loader(text, shard=shard) for shard in shards((1, 1)))
    assert [batch["label"].tolist() for batch in first.take(6)] == [[0], [2], [4]]
    with pytest.raises(DataError, match=r"3\.png.* cannot be decoded"):
        second.take(6)


@pytest.mark.parametrize("kind", ["HDF5", "Python"])
def test_labels_are_checked_in_what_is_taken(open_loader: Callable[..., Loader], folder: Path, kind: str) -> None:
    text = (
        net_of(kind, folder)
        + """
        layer { name: "ip" type: "InnerProduct" bottom: "data" top: "y" inner_product_param { num_output: 5 } }
        layer { name: "loss" type: "SoftmaxWithLoss" bottom: "y" bottom: "label" }"""
    )
    first, second = (open_loader(text, shard=shard) for shard in shards((1, 1)))
    assert [batch["label"].tolist() for batch in first.take(2)] == [[0, 1, 2]]
    with pytest.raises(DataError, match="blob 'label' holds 5 in row 2"):
        second.take(2)
