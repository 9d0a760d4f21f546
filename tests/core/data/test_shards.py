"""Shards of the data: readers of all shards together read each batch once."""

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
from caffejax.base.config import DataShard, NetConfig
from caffejax.base.databases import write_leveldb, write_lmdb
from caffejax.base.errors import DataError
from caffejax.core.data import Batch, Batches
from caffejax.core.data.loader import Loader

NUM_EXAMPLES = 13
BATCH_SIZE = 3  # examples in a batch
COUNTS_PER_SHARD = [
    (1,),
    (1, 1),
    (2, 1),
    (3, 5),
]  # in each case, the number of batches of a round that each shard reads
KINDS = ["LMDB", "LEVELDB", "HDF5", "HDF5 shuffled", "ImageData", "WindowData", "Python"]

Arrays = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, make_raw_datum: Callable[..., bytes]) -> Path:
    """Thirteen examples with labels 0 to 12, of each kind."""
    path = tmp_path_factory.mktemp("shards")
    records = [(b"%03d" % i, make_raw_datum(i)) for i in range(NUM_EXAMPLES)]
    write_lmdb(path / "lmdb", records)
    write_leveldb(path / "leveldb", records)
    for name, rows in (("a", range(5)), ("b", range(5, 7)), ("c", range(7, 13))):
        with h5py.File(path / f"{name}.h5", "w") as file:
            file["data"] = np.array([[row, -row] for row in rows], np.float32)
            file["label"] = np.array(rows)
    (path / "files.txt").write_text("a.h5\nb.h5\nc.h5\n")
    for i in range(NUM_EXAMPLES):
        pixels = np.random.default_rng(i).integers(0, 256, (8, 9, 3), np.uint8)
        cv2.imwrite(str(path / f"{i}.png"), pixels)
    (path / "images.txt").write_text("".join(f"{i}.png {i}\n" for i in range(NUM_EXAMPLES)))
    window = "# {0}\n{0}.png\n3\n8\n9\n2\n{1} 1.0 1 0 7 6\n0 0.1 0 2 5 7\n"
    (path / "windows.txt").write_text("".join(window.format(i, 1 + i) for i in range(NUM_EXAMPLES)))
    return path


def net_text(
    kind: str, folder: Path, size: int = BATCH_SIZE, name: str = "d", tops: Sequence[str] = ("data", "label")
) -> str:
    """The text of a net with one data layer."""
    random_transform = "transform_param { crop_size: 5 mirror: true }"
    param_name, settings, transform_param = {
        "LMDB": ("data_param", f'source: "{folder / "lmdb"}" backend: LMDB prefetch: 2', random_transform),
        "LEVELDB": ("data_param", f'source: "{folder / "leveldb"}" backend: LEVELDB', random_transform),
        "HDF5": ("hdf5_data_param", f'source: "{folder / "files.txt"}"', ""),
        "HDF5 shuffled": ("hdf5_data_param", f'source: "{folder / "files.txt"}" shuffle: true', ""),
        "ImageData": (
            "image_data_param",
            f'source: "{folder / "images.txt"}" shuffle: true rand_skip: 5',
            random_transform,
        ),
        "WindowData": ("window_data_param", f'source: "{folder / "windows.txt"}" fg_fraction: 0.4', random_transform),
        "Python": ("python_param", 'module: "python_rows" layer: "Rows"', ""),
    }[kind]
    batch_size = "" if kind == "Python" else f"batch_size: {size}"
    layer_type = {"LMDB": "Data", "LEVELDB": "Data"}.get(kind, kind.split()[0] + "Data" * kind.startswith("HDF5"))
    top_fields = " ".join(f'top: "{top}"' for top in tops)
    message = f"{param_name} {{ {settings} {batch_size} }}"
    return f'layer {{ name: "{name}" type: "{layer_type}" {top_fields} {transform_param} {message} }}'


def make_shards(counts: Sequence[int]) -> list[DataShard]:
    """Return consecutive shards with these counts, which together are all batches."""
    firsts = itertools.accumulate(counts, initial=0)
    return [DataShard(first, count, sum(counts)) for first, count in zip(firsts, counts, strict=False)]


@pytest.fixture
def open_loader() -> Iterator[Callable[..., Loader]]:
    """Opens what feeds a net, by options of reading; closes it."""
    with ExitStack() as stack:

        def open_loader(text: str, **data_options: Any) -> Loader:
            net = Net(text, "TRAIN", config=NetConfig(**{"seed": 7, **data_options}))
            return stack.enter_context(closing(Loader(net.graph)))

        yield open_loader


def are_equal_batches(first: Arrays, second: Arrays) -> bool:
    return first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)


def check_batches(
    all_batches: list[Arrays],
    sharded_loaders: list[tuple[DataShard, Loader]],
    takes: Sequence[int],
    first_index: int = 0,
) -> None:
    """Check that readers of all shards give what one gives: batch i of `all_batches` has number `first_index + i`."""
    num_taken = 0
    for n in takes:
        shard_batches = [(shard, loader.take(n)) for shard, loader in sharded_loaders]
        indices = range(first_index + num_taken, first_index + num_taken + n)
        for shard, batches in shard_batches:
            expected = [i for i in indices if shard.first <= i % shard.total < shard.first + shard.count]
            assert len(batches) == len(expected)
            for i, batch in zip(expected, batches, strict=True):
                assert are_equal_batches(batch, all_batches[i - first_index]), f"{shard}: batch {i}"
        assert sum(len(batches) for _, batches in shard_batches) == n
        num_taken += n
    assert num_taken <= len(all_batches)


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


@pytest.mark.parametrize("counts", COUNTS_PER_SHARD, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_all_shards_together_read_all_batches(
    open_loader: Callable[..., Loader], folder: Path, kind: str, counts: tuple[int, ...]
) -> None:
    text, total = net_text(kind, folder), sum(counts)
    takes = [total, 2 * total, 7, 3, 1, total]
    unsharded_loader = open_loader(text)
    all_batches = [next(unsharded_loader) for _ in range(sum(takes))]
    assert not are_equal_batches(all_batches[0], all_batches[1])
    sharded_loaders = [(shard, open_loader(text, shard=shard)) for shard in make_shards(counts)]
    recorders = [record_reads(loader) for _, loader in sharded_loaders]
    check_batches(all_batches, sharded_loaders, takes)
    assert all(loader.get_state() == unsharded_loader.get_state() for _, loader in sharded_loaders)
    assert unsharded_loader.get_state() == {"d": {"row" if kind == "Python" else "examples": BATCH_SIZE * sum(takes)}}
    for (shard, _), recorder in zip(sharded_loaders, recorders, strict=True):
        if recorder is not None:
            assert {start % BATCH_SIZE for start in recorder.starts} == {0}
            remainders = {start // BATCH_SIZE % total for start in recorder.starts}
            assert remainders == set(range(shard.first, shard.first + shard.count)), "what is not the shard's was read"
            assert len(recorder.starts) == len(set(recorder.starts)), "a batch was read twice"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "WindowData"])  # that one draws at random
def test_no_example_comes_twice_in_an_epoch(open_loader: Callable[..., Loader], folder: Path, kind: str) -> None:
    loaders = [open_loader(net_text(kind, folder, 1), shard=shard) for shard in make_shards((2, 1))]
    shard_batches = [loader.take(39) for loader in loaders]
    if kind == "Python":  # its batches are of 3: three rounds are 13 batches
        shard_batches = [batches[:count] for batches, count in zip(shard_batches, (9, 4), strict=True)]
    labels = [int(label) for batches in shard_batches for batch in batches for label in batch["label"]]
    assert sorted(labels) == sorted([*range(NUM_EXAMPLES)] * 3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("old_counts", "new_counts"), [((2, 1), (1, 1)), ((1,), (3, 5)), ((3, 5), (1,)), ((1, 1), (2, 1))]
)
def test_a_position_is_restored_with_other_shards(
    open_loader: Callable[..., Loader],
    folder: Path,
    kind: str,
    old_counts: tuple[int, ...],
    new_counts: tuple[int, ...],
) -> None:
    text, num_taken = net_text(kind, folder), 11  # of no number of shards a multiple
    unsharded_loader = open_loader(text)
    all_batches = [next(unsharded_loader) for _ in range(num_taken + 30)]
    states = []
    for shard in make_shards(old_counts):
        loader = open_loader(text, shard=shard)
        loader.take(num_taken)
        states.append(loader.get_state())
    assert all(state == states[0] for state in states)
    sharded_loaders = [(shard, open_loader(text, shard=shard)) for shard in make_shards(new_counts)]
    for _, loader in sharded_loaders:
        loader.take(5)  # and back
        loader.set_state(states[0])
    # a Python layer tells no number: counted from there
    first_index = 0 if kind == "Python" else num_taken
    check_batches(all_batches[num_taken:], sharded_loaders, [sum(new_counts), 5, 1, sum(new_counts)], first_index)


@pytest.mark.parametrize("kind", ["LMDB", "HDF5 shuffled"])
@pytest.mark.parametrize("num_examples", [0, 1, 8, 12, 30])
def test_a_position_of_another_batch_size_is_restored(
    open_loader: Callable[..., Loader], folder: Path, kind: str, num_examples: int
) -> None:
    text = net_text(kind, folder, 4)
    unsharded_loader = open_loader(text)
    unsharded_loader.set_state({"d": {"examples": num_examples}})
    all_batches = [next(unsharded_loader) for _ in range(12)]
    sharded_loaders = [(shard, open_loader(text, shard=shard)) for shard in make_shards((2, 1))]
    for _, loader in sharded_loaders:
        loader.set_state({"d": {"examples": num_examples}})
    check_batches(all_batches, sharded_loaders, [3, 2, 1, 6], num_examples // 4)
    assert {loader.get_state()["d"]["examples"] for _, loader in sharded_loaders} == {num_examples + 48}


@pytest.mark.parametrize("kinds", [("LMDB", "WindowData"), ("Python", "ImageData"), ("ImageData", "Python")])
def test_layers_at_different_positions_return_batches_of_the_same_shard(
    open_loader: Callable[..., Loader], folder: Path, kinds: tuple[str, str]
) -> None:
    """For example, training continues with an additional data layer that the checkpoint does not contain."""
    text = net_text(kinds[0], folder) + net_text(kinds[1], folder, 2, "e", ("more", "kind"))
    position = {"d": {"row": 15} if kinds[0] == "Python" else {"examples": 15}}  # 5 batches
    unsharded_loader = open_loader(text)
    unsharded_loader.set_state(position)
    all_batches = [next(unsharded_loader) for _ in range(20)]
    sharded_loaders = [(shard, open_loader(text, shard=shard)) for shard in make_shards((1, 2))]
    for _, loader in sharded_loaders:
        loader.take(4)
        loader.set_state(position | {"e": {"row": 0, "examples": 0}})
    check_batches(all_batches, sharded_loaders, [3, 4, 2, 6], 0 if kinds[0] == "Python" else 5)
    assert len({str(loader.get_state()) for _, loader in sharded_loaders}) == 1


def test_worker_processes_read_shards(open_loader: Callable[..., Loader], folder: Path) -> None:
    text = net_text("LMDB", folder)
    unsharded_loader = open_loader(text)
    all_batches = [next(unsharded_loader) for _ in range(14)]
    # one shard is read without processes: each process takes more than a second to start
    sharded_loaders = [
        (shard, open_loader(text, shard=shard, workers=n)) for shard, n in zip(make_shards((1, 1)), (0, 2), strict=True)
    ]
    check_batches(all_batches, sharded_loaders, [2, 4, 3, 2])
    for _, loader in sharded_loaders:
        loader.set_state({"d": {"examples": 5 * BATCH_SIZE}})
    check_batches(all_batches[5:], sharded_loaders, [2, 3], 5)


@pytest.mark.parametrize("kind", KINDS)
def test_next_returns_the_batches_of_the_shard_one_by_one(
    open_loader: Callable[..., Loader], folder: Path, kind: str
) -> None:
    text = net_text(kind, folder)
    unsharded_loader = open_loader(text)
    all_batches = [next(unsharded_loader) for _ in range(12)]
    loader = open_loader(text, shard=DataShard(1, 2, 4))
    for i in (1, 2, 5, 6, 9, 10):
        assert are_equal_batches(next(loader), all_batches[i])


def test_a_python_layer_runs_for_every_batch_and_returns_its_shards(
    open_loader: Callable[..., Loader], folder: Path
) -> None:
    loader = open_loader(net_text("Python", folder), shard=DataShard(1, 1, 4))
    rows = loader._graph.layers[0].type.instance
    assert [batch["data"][0, 0] for batch in loader.take(9)] == [3, 15]
    assert rows.num_batches == 9


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("WindowData", "Python")])
@pytest.mark.parametrize("n", [2, 3])
def test_batches_of_several_devices_equal_one_large_batch(
    open_loader: Callable[..., Loader], folder: Path, kind: str, n: int
) -> None:
    """The batches of n devices, concatenated along the first axis, equal a batch that is n times as large."""
    large_loader, small_loader = (
        open_loader(net_text(kind, folder, n * BATCH_SIZE)),
        open_loader(net_text(kind, folder), shard=DataShard(0, n, n)),
    )
    for _ in range(6):
        batches = small_loader.take(n)
        combined_batch = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
        assert are_equal_batches(combined_batch, next(large_loader))


def test_errors_of_a_batch_are_raised_by_its_shard(open_loader: Callable[..., Loader], tmp_path: Path) -> None:
    for i in range(6):
        cv2.imwrite(str(tmp_path / f"{i}.png"), np.full((4, 4, 3), i, np.uint8))
    (tmp_path / "3.png").write_bytes(b"no image")
    (tmp_path / "list.txt").write_text("".join(f"{i}.png {i}\n" for i in range(6)))
    text = f"""layer {{ name: "d" type: "ImageData" top: "data" top: "label"
        image_data_param {{ source: "{tmp_path / "list.txt"}" batch_size: 1 }} }}"""
    first_loader, second_loader = (open_loader(text, shard=shard) for shard in make_shards((1, 1)))
    assert [batch["label"].tolist() for batch in first_loader.take(6)] == [[0], [2], [4]]
    with pytest.raises(DataError, match=r"3\.png.* cannot be decoded"):
        second_loader.take(6)


@pytest.mark.parametrize("kind", ["HDF5", "Python"])
def test_labels_are_checked_in_batches_of_the_shard(
    open_loader: Callable[..., Loader], folder: Path, kind: str
) -> None:
    text = (
        net_text(kind, folder)
        + """
        layer { name: "ip" type: "InnerProduct" bottom: "data" top: "y" inner_product_param { num_output: 5 } }
        layer { name: "loss" type: "SoftmaxWithLoss" bottom: "y" bottom: "label" }"""
    )
    first_loader, second_loader = (open_loader(text, shard=shard) for shard in make_shards((1, 1)))
    assert [batch["label"].tolist() for batch in first_loader.take(2)] == [[0, 1, 2]]
    with pytest.raises(DataError, match="blob 'label' holds 5 in row 2"):
        second_loader.take(2)
