"""The dtype in which gradients are summed over devices: `Parallel.reduce_dtype`."""

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from parallel_nets import make_solver_text, train, write_data

NET = "ignored"  # convolutions with biases


def train_net(
    eight_devices: ProcessPoolExecutor,
    folder: Path,
    reduce_dtype: str,
    *,
    iterations: int = 1,
    parallel: Any = (),
    **solver_options: Any,
) -> dict[str, list[np.ndarray]]:
    """Return the parameters after some steps on eight devices, without momentum."""
    text = make_solver_text(folder, NET, 4).replace("momentum: 0.9 weight_decay: 0.0005", "momentum: 0")
    options = {**dict(parallel), "reduce_dtype": reduce_dtype}
    return eight_devices.submit(train, text, 8, options, iterations=iterations, **solver_options).result()[1]


@pytest.mark.parametrize("parallel", [(), pytest.param((("shard", "params"),), marks=pytest.mark.long)])
def test_weights_are_rounded_and_biases_are_not(
    eight_devices: ProcessPoolExecutor, tmp_path: Path, parallel: Any
) -> None:
    write_data(tmp_path, NET)
    options: Any = {"precision": "bfloat16", "parallel": parallel}
    initial = train_net(eight_devices, tmp_path, "auto", iterations=0, **options)
    rounded, exact = (train_net(eight_devices, tmp_path, dtype, **options) for dtype in ("auto", "float32"))
    for layer, (weight, bias) in rounded.items():
        np.testing.assert_array_equal(bias, exact[layer][1])
        update = exact[layer][0] - initial[layer][0]
        assert (weight != exact[layer][0]).any()
        # of eight sums of the same size each is rounded to 8 bits, and so is what comes out
        np.testing.assert_allclose(weight - initial[layer][0], update, rtol=0, atol=2**-7 * np.abs(update).max())


@pytest.mark.parametrize(
    "options",
    [
        {"iterations": 3},
        pytest.param({"precision": "bfloat16", "parallel": (("model", 2),)}, marks=pytest.mark.long),
    ],
    ids=str,
)
def test_reduce_dtype_has_no_effect_on_float32_or_with_model_parallelism(
    eight_devices: ProcessPoolExecutor, tmp_path: Path, options: Any
) -> None:
    write_data(tmp_path, NET)
    default_params, float32_params = (
        train_net(eight_devices, tmp_path, dtype, **options) for dtype in ("auto", "float32")
    )
    for layer, blobs in default_params.items():
        for blob, expected in zip(blobs, float32_params[layer], strict=True):
            np.testing.assert_array_equal(blob, expected)
