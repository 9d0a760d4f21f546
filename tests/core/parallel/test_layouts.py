"""Weights of 1x1 convolutions in a custom layout, as on TPUs: here on devices of a CPU."""

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import SingleDeviceSharding
from parallel_nets import assert_equal, list_params, make_solver_text, train, write_data

from caffejax.core.parallel import mesh
from caffejax.core.parallel.mesh import tpu_conv_layout

MINOR_AXES = {  # which axis of a weight comes last in memory
    (256, 512, 1, 1): 0,
    (1000, 1024, 1, 1): 1,  # only inputs fill tiles
    (1000, 500, 1): 0,
    (256, 128, 1, 1): 0,
}
DEFAULT_LAYOUT_SHAPES = [(256, 512, 3, 3), (256, 512), (256,), (), (256, 64, 1, 1)]  # the last would not fill tiles


def test_weights_of_1x1_convolutions_have_a_custom_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    sharding = SingleDeviceSharding(jax.devices()[0])
    shapes = {shape: jax.ShapeDtypeStruct(shape, np.float32) for shape in (*MINOR_AXES, *DEFAULT_LAYOUT_SHAPES)}
    assert all(tpu_conv_layout(x, sharding) is sharding for x in shapes.values()), "on a CPU"
    monkeypatch.setattr(mesh, "_TILES", {"cpu": ()})
    assert all(tpu_conv_layout(shapes[shape], sharding) is sharding for shape in DEFAULT_LAYOUT_SHAPES)
    for shape, minor_axis in MINOR_AXES.items():
        result = tpu_conv_layout(shapes[shape], sharding)
        array = jax.device_put(np.arange(np.prod(shape), dtype=np.float32).reshape(shape), result)
        assert array.format == result
        assert array.format.layout.major_to_minor[-1] == minor_axis
        assert array.sharding == sharding


def train_in_layouts(text: str, resume: str = "") -> tuple[Any, int]:
    """Return the results of `train`, and the number of steps that kept the layouts of the 1x1 weight and history."""
    import jax

    import caffejax

    tiles, lanes = mesh._TILES, mesh._LANES
    mesh._TILES, mesh._LANES = {"cpu": ()}, 4  # type: ignore[assignment]
    try:
        solver = caffejax.Solver(text, devices=4)
        if resume:
            solver.restore(resume)
        losses: list[float] = []
        n_kept_layouts = 0

        def check_layouts(s: Any) -> None:
            nonlocal n_kept_layouts
            losses.append(s.smoothed_loss)
            weights = [x for x in jax.tree.leaves(s.train_state) if x.shape == (4, 8, 1, 1)]
            n_kept_layouts += [x.format.layout.major_to_minor for x in weights] == [(2, 3, 1, 0)] * 2

        solver.callbacks.append(check_layouts)
        solver.step(2)
        solver.train_state = solver.train_state
        solver.step(2)
        result = list_params(solver)
        solver.close()
    finally:
        mesh._TILES, mesh._LANES = tiles, lanes
    return (losses, result), n_kept_layouts


def test_training_keeps_layouts_and_results(eight_devices: ProcessPoolExecutor, tmp_path: Path) -> None:
    """Training starts from the initial state, from a state that is set, and from a checkpoint."""
    write_data(tmp_path, "ignored")
    text = make_solver_text(tmp_path, "ignored", 4, "snapshot: 4")
    first_trajectory, n_kept_layouts = eight_devices.submit(train_in_layouts, text).result()
    snapshot = f"{tmp_path}/ignored.orbax/4"
    resumed_trajectory, n_kept_after_resume = eight_devices.submit(train_in_layouts, text, snapshot).result()
    assert (n_kept_layouts, n_kept_after_resume) == (4, 4)
    assert_equal(
        (first_trajectory[0] + resumed_trajectory[0], resumed_trajectory[1]),
        eight_devices.submit(train, text, 4, {}, iterations=8).result(),
    )
