"""Training on batches whose numbers of rows change: few programs, and the numbers of exact shapes."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from caffejax import PaddedRows, Solver
from caffejax.core.solver.compiled_updater import RowPadding

NET = """
layer { name: "in" type: "Input" top: "data" top: "label" top: "scale" input_param {
  shape { dim: 2 dim: 5 } shape { dim: 2 } shape { dim: 1 dim: 3 } } }
layer { name: "ip1" type: "InnerProduct" bottom: "data" top: "ip1"
  inner_product_param { num_output: 8 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "ip1" top: "ip1" }
layer { name: "drop" type: "Dropout" bottom: "ip1" top: "ip1" }
layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2"
  inner_product_param { num_output: 4 weight_filler { type: "xavier" } } }
%s
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }
layer { name: "accuracy" type: "Accuracy" bottom: "ip2" bottom: "label" top: "accuracy" }
layer { name: "quiet" type: "Silence" bottom: "scale" }
"""
BATCH_NORM = 'layer { name: "bn" type: "BatchNorm" bottom: "ip2" top: "ip2" }'


def draw_batches(row_counts: Sequence[int]) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [
        {
            "data": rng.normal(size=(n, 5)).astype(np.float32),
            "label": rng.integers(0, 4, n).astype(np.float32),
            "scale": np.ones((1, 3), np.float32),
        }
        for n in row_counts
    ]


def train(
    batches: Any, iterations: int, net: str = NET % "", settings: str = "", **options: Any
) -> tuple[Any, list[str]]:
    """Return the params after training, and the programs that were compiled."""
    solver = Solver(
        f'net_param {{ {net} }} base_lr: 0.1 lr_policy: "fixed" momentum: 0.9 random_seed: 1 max_iter: 100 '
        f"clip_gradients: 5 average_loss: 100 {settings}",
        data=batches,
        **options,
    )
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logger = logging.getLogger("jax._src.dispatch")
    logger.addHandler(handler)
    try:
        with jax.log_compiles():
            solver.step(iterations)
    finally:
        logger.removeHandler(handler)
    params = jax.tree.map(np.array, (solver.variables.params, solver.smoothed_loss))
    solver.close()
    names = ("jit(step)", "jit(steps)")
    messages = [r.getMessage() for r in records]
    return params, [m for m in messages if "XLA compilation" in m and any(name in m for name in names)]


def train_on_exact_shapes(*args: Any, **kwargs: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RowPadding, "__call__", lambda self, batch: dict(batch))
        return train(*args, **kwargs)


def compare(params: Any, expected: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), params, expected)


def test_fifty_numbers_of_rows_compile_four_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    batches = draw_batches(range(2, 52))
    _, programs = train(batches, 50)
    assert 1 < len(programs) <= 4
    expected, exact_programs = train_on_exact_shapes(batches, 20)
    assert len(exact_programs) == 20
    compare(train(batches, 20)[0], expected)


@pytest.mark.parametrize(
    ("settings", "options"),
    [("iter_size: 3", {}), ("", {"steps_per_dispatch": 3}), ("", {"remat": "auto", "memory_limit": 1})],
)
def test_passes_and_steps_with_other_numbers_of_rows_share_a_program(
    settings: str, options: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    batches = draw_batches([2, 2, 2, 20, 3, 17, 2, 40, 1, 16, 32, 33])
    params, programs = train(batches, 6, settings=settings, **options)
    expected, _ = train_on_exact_shapes(batches, 6, settings=settings, **options)
    compare(params, expected)
    assert len(programs) <= 5


def test_a_layer_that_depends_on_all_rows_keeps_exact_shapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    batches = draw_batches([2, 5, 7])
    with caplog.at_level(logging.INFO, logger="caffejax"):
        params, _ = train(batches, 3, NET % BATCH_NORM)
    compare(params, train_on_exact_shapes(batches, 3, NET % BATCH_NORM)[0])
    assert (
        "The net is compiled for each number of rows of 'data', 'label', because these layers depend on all rows: 'bn'"
        in [r.getMessage() for r in caplog.records]
    )


def test_inputs_with_equal_numbers_of_rows_have_one_origin() -> None:
    """Until a batch shows that their numbers differ; then a loss that reads both is refused, as with exact shapes."""
    graph = Solver(f'net_param {{ {NET % ""} }} base_lr: 0.1 lr_policy: "fixed"', data=draw_batches([2])).net.graph
    pad = RowPadding(graph)
    batches = draw_batches([2, 5, 17, 0])
    assert all(isinstance(x, np.ndarray) for x in pad(batches[0]).values())
    for batch, rows in zip(batches[1:3], (16, 32), strict=True):
        padded = pad(batch)
        assert isinstance(padded["data"], PaddedRows)
        assert padded["data"].shape == (rows, 5)
        assert padded["data"].origin == padded["label"].origin
        np.testing.assert_array_equal(padded["data"], batch["data"])
        assert isinstance(padded["scale"], np.ndarray)
    assert all(isinstance(x, np.ndarray) for x in pad(batches[3]).values())
    mismatched = batches[1] | {"label": batches[2]["label"]}
    assert all(isinstance(x, np.ndarray) for x in pad(mismatched).values())
