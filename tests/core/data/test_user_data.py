"""A user's arrays and loaders as data: their batches, positions, and messages about invalid data."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import grain
import numpy as np
import pytest

from caffejax import CaffejaxError, DataError, GraphError
from caffejax.base.config import NetConfig
from caffejax.core.data.loader import Loader
from caffejax.core.data.user_data import UserData
from caffejax.core.graph import Graph, build_graph, make_net_state
from caffejax.core.schema import read_net

NET = """
layer { name: "in" type: "Input" top: "x" top: "y" input_param { shape { dim: 4 dim: 3 } shape { dim: 4 } } }
layer { name: "fc" type: "InnerProduct" bottom: "x" top: "fc" inner_product_param { num_output: 5 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "y" top: "loss" }
"""
NUM_ROWS = 10
X, Y = np.arange(NUM_ROWS * 3).reshape(NUM_ROWS, 3), np.arange(NUM_ROWS) % 5
BATCHES = [{"x": X[i : i + 4], "y": Y[i : i + 4]} for i in (0, 4, 6)]


@pytest.fixture(scope="module")
def graph() -> Graph:
    net_param = read_net(NET)
    return build_graph(net_param, make_net_state(net_param, "TRAIN", 0, ()))


class Tensor:
    """An object that NumPy can convert to an array, like a tensor of torch."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self._array if dtype is None else self._array.astype(dtype)


class ReusedArrays:
    """Batches that are all written into the same arrays."""

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        x, y = np.zeros((4, 3)), np.zeros(4)
        for batch in BATCHES:
            x[...], y[...] = batch["x"], batch["y"]
            yield {"x": x, "y": y}


class GrainLoader:
    """A loader of Grain's, whose iterators' states are bytes."""

    def __iter__(self) -> Iterator[Any]:
        sampler = grain.samplers.IndexSampler(len(BATCHES), grain.sharding.NoSharding(), num_epochs=1, shuffle=False)
        return iter(grain.DataLoader(data_source=BATCHES, sampler=sampler, worker_count=0))  # type: ignore[arg-type]


def make_permuted_epoch(epoch: int) -> dict[str, np.ndarray]:
    order = np.random.default_rng(epoch).permutation(NUM_ROWS)
    return {"x": X[order], "y": Y[order]}


DATA_FACTORIES: dict[str, Callable[[], Any]] = {
    "arrays": lambda: {"x": X, "y": Y},
    "arrays of each epoch": lambda: make_permuted_epoch,
    "list": lambda: BATCHES,
    "tuples": lambda: [(b["x"], b["y"]) for b in BATCHES],
    "tensors and more blobs": lambda: [{"x": Tensor(b["x"]), "y": Tensor(b["y"]), "z": "names"} for b in BATCHES],
    "reused arrays": ReusedArrays,
    "generator of each epoch": lambda: lambda epoch: (b for b in BATCHES[epoch % 2 :]),
    "endless generator": lambda: (b for _ in range(1000) for b in BATCHES),
    "grain's map dataset": lambda: grain.MapDataset.source(BATCHES),
    "grain's iter dataset": lambda: grain.MapDataset.source(BATCHES).repeat().to_iter_dataset(),
    "grain's iterator": lambda: iter(grain.MapDataset.source(BATCHES).repeat().to_iter_dataset()),
    "grain's loader": GrainLoader,
}


def expected_batches(kind: str, n: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """The first batches, by the meaning of each kind rather than by its code."""
    if kind.startswith("arrays"):
        epochs = [make_permuted_epoch(e) if kind.endswith("epoch") else {"x": X, "y": Y} for e in range(n)]
        x, y = (np.concatenate([e[blob] for e in epochs]) for blob in "xy")
        return [(x[4 * i : 4 * i + 4], y[4 * i : 4 * i + 4]) for i in range(n)]
    batches = BATCHES * n
    if kind == "generator of each epoch":
        batches = [b for e in range(n) for b in BATCHES[e % 2 :]]
    return [(b["x"], b["y"]) for b in batches[:n]]


@pytest.mark.parametrize("kind", DATA_FACTORIES)
def test_batches_have_the_expected_examples(graph: Graph, kind: str) -> None:
    data = UserData("data", DATA_FACTORIES[kind](), graph)
    result = list(islice(data, 8))
    data.close()
    assert len(result) == 8
    for batch, (x, y) in zip(result, expected_batches(kind, 8), strict=True):
        assert list(batch) == ["x", "y"]
        assert {a.dtype for a in batch.values()} == {np.dtype(np.float32)}
        np.testing.assert_array_equal(batch["x"], x)
        np.testing.assert_array_equal(batch["y"], y)


@pytest.mark.parametrize("kind", DATA_FACTORIES)
@pytest.mark.parametrize("num_taken", [0, 2, 3, 5], ids=lambda n: f"after {n}")
def test_reading_continues_at_a_restored_position(graph: Graph, kind: str, num_taken: int) -> None:
    original_data = UserData("data", DATA_FACTORIES[kind](), graph)
    for _ in range(num_taken):
        next(original_data)
    position = json.loads(json.dumps(original_data.get_state()))
    resumed_data = UserData("data", DATA_FACTORIES[kind](), graph)
    resumed_data.set_state(position)
    assert resumed_data.get_state()["done"] == position["done"]
    for x, y in expected_batches(kind, num_taken + 4)[num_taken:]:
        batch = next(resumed_data)
        np.testing.assert_array_equal(batch["x"], x)
        np.testing.assert_array_equal(batch["y"], y)
    if kind != "endless generator":
        original_data.close()
        resumed_data.set_state(position)  # back, in the same process
        np.testing.assert_array_equal(next(resumed_data)["x"], expected_batches(kind, num_taken + 1)[num_taken][0])
        np.testing.assert_array_equal(next(original_data)["x"], expected_batches(kind, num_taken + 1)[num_taken][0])


@pytest.mark.parametrize("kind", ["arrays", "list"])
def test_a_batch_of_the_user_is_split_among_devices(graph: Graph, kind: str) -> None:
    def split(data: Any, num_parts: int) -> UserData:
        layers = (
            replace(layer, definition=replace(layer.definition, config=NetConfig(num_parts=num_parts)))
            for layer in graph.layers
        )
        return UserData("data", data, replace(graph, layers=tuple(layers)))

    data = split([{"x": X[:8], "y": Y[:8]}] if kind == "list" else {"x": X, "y": Y}, 2)
    for i in range(2):
        np.testing.assert_array_equal(next(data)["y"], Y[4 * i : 4 * i + 4])
    if kind == "list":
        with pytest.raises(DataError, match="has 4 examples in 'x', which cannot be divided among 3 devices"):
            next(split(BATCHES, 3))


INVALID_DATA: dict[str, tuple[Any, str]] = {
    "a number": (3, "must be {blob: array} of all examples, an iterable of batches, or a function"),
    "a path": ("data.npz", "not a value of type str"),
    "a function's number": (lambda epoch: 3, r"data\(0\) must return {blob: array}"),
    "numbers as batches": (
        [3],
        "batch 1 of epoch 0: the batch must be {blob: array}, or a tuple of arrays for 'x', 'y'",
    ),
    "nothing": ([], "data is empty in epoch 0"),
    "no rows": ({"x": X[:0], "y": Y[:0]}, "data is empty in epoch 0"),
    "an empty batch": ([{"x": X[:0], "y": Y[:0]}], "'x' is empty"),
    "other lengths": ({"x": X, "y": Y[:3]}, "'x' has 10, 'y' has 3"),
    "a missing blob": ([{"x": X, "yy": Y}], "has no 'y', only 'x', 'yy'; did you mean 'yy'"),
    "another number of axes": ({"x": X[..., None], "y": Y}, r"'x' has shape \(4, 3, 1\), but the net needs \(4, 3\)"),
    "text": ([(X, ["a"] * NUM_ROWS)], "'y' holds <U1, not numbers"),
    "ragged lists": ([(X, [[1], [2, 3]])], "'y' cannot be converted to a NumPy array"),
    "too many arrays": ([(X, Y, Y)], "has 3 arrays, but the net has 2 inputs: 'x', 'y'"),
    "an ended iterator": (iter([]), "has ended after 0 batches, and an iterator cannot start again"),
}


@pytest.mark.parametrize("case", INVALID_DATA)
def test_invalid_data_is_refused(graph: Graph, case: str) -> None:
    data, message = INVALID_DATA[case]
    with pytest.raises(DataError, match=message):
        next(UserData("data", data, graph))


def test_all_problems_of_a_batch_are_reported_at_once(graph: Graph) -> None:
    with pytest.raises(DataError) as exc_info:
        next(UserData("data", [{"x": X[..., None], "yy": Y}], graph))
    assert len(exc_info.value.problems) == 2


@pytest.mark.parametrize(
    ("batch", "error_type", "message"),
    [
        (
            (X[:, :2], Y),
            GraphError,
            r"'x' of the batch has shape \(10, 2\), but the net is built for \(4, 3\) and cannot be",
        ),
        ((X, Y[:3]), GraphError, r"'y' of the batch has shape \(3,\)"),
        ((X, Y + 5), DataError, "holds 5 in row 0 of the batch, but the layer has 5 classes"),
    ],
    ids=["other axes", "other rows", "a label beyond the classes"],
)
def test_the_loader_refuses_batches_that_do_not_fit_the_net(
    graph: Graph, batch: Any, error_type: type[CaffejaxError], message: str
) -> None:
    loader = Loader(graph, user_data=UserData("data", [batch], graph))
    for _ in range(2):  # not the first time only
        with pytest.raises(error_type, match=message):
            next(loader)


def test_the_error_suggests_a_transpose_of_the_axes(graph: Graph) -> None:
    text = 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 4 dim: 3 dim: 8 dim: 9 } } }'
    net_param = read_net(text)
    image_graph = build_graph(net_param, make_net_state(net_param, "TRAIN", 0, ()))
    with pytest.raises(DataError, match=r"transpose it by \(0, 3, 1, 2\)"):
        UserData("data", {"x": np.zeros((5, 8, 9, 3))}, image_graph)


@pytest.mark.parametrize(
    "position",
    [None, 3, {}, {"epoch": -1, "done": 0}, {"epoch": 0, "done": True}, {"epoch": 0, "done": 2**70},
     {"epoch": 0, "done": 1, "unit": []}, {"epoch": 0, "done": 50}, {"epoch": 0, "done": 2, "unit": "rows"}],
    ids=str,
)  # fmt: skip
def test_invalid_positions_are_refused(graph: Graph, position: Any) -> None:
    data = UserData("data", BATCHES, graph)
    next(data)

    def restore_and_read() -> None:
        data.set_state(position)
        next(data)

    with pytest.raises(DataError, match=r"is not a position|ends after 3 batches|counts rows"):
        restore_and_read()
    array_data = UserData("data", {"x": X, "y": Y}, graph)
    array_data.set_state({"epoch": 0, "done": 50, "unit": "rows"})
    with pytest.raises(DataError, match="has 10 rows, but the snapshot was made after 50 rows had been read"):
        next(array_data)


def test_an_iterator_cannot_go_back(graph: Graph) -> None:
    data = UserData("data", iter(BATCHES), graph)
    next(data)
    with pytest.raises(DataError, match="has returned 1 batches, and cannot go back"):
        data.set_state({"epoch": 0, "done": 0})


def test_invalid_states_of_grain_iterators_are_refused(graph: Graph) -> None:
    data = UserData("data", grain.MapDataset.source(BATCHES), graph)
    data.set_state({"epoch": 0, "done": 1, "iterator": "nonsense"})
    with pytest.raises(DataError, match="does not accept the position in the snapshot"):
        next(data)
