"""Rematerialization: the same numbers in less memory, the measured residuals, and the choice of groups."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from schedule_nets import CHAIN, CONFIGS, KEY, get_step_names, make_inputs

from caffejax import Net, Solver, declare
from caffejax.cli import main
from caffejax.core.layers.registry import register_temporarily
from caffejax.core.program.interpreter import PassInputs, run_schedule
from caffejax.core.program.rematerialize import (
    RematGroups,
    Unit,
    Value,
    apply_groups,
    compute_part_with_remat,
    measure_residuals,
    search_groups,
)
from caffejax.core.program.schedule import LayerSchedule, Step
from caffejax.core.schema import read_solver


def make_residual_net(blocks: int = 3, size: int = 8) -> str:
    """Blocks of convolution, BatchNorm, Scale, ReLU and Dropout with a way past each; two losses."""

    def make_block(i: int, bottom: str) -> str:
        return f"""
layer {{ name: "c{i}" type: "Convolution" bottom: "{bottom}" top: "c{i}"
  convolution_param {{ num_output: 8 kernel_size: 3 pad: 1 bias_term: false weight_filler {{ type: "msra" }} }} }}
layer {{ name: "b{i}" type: "BatchNorm" bottom: "c{i}" top: "c{i}" }}
layer {{ name: "s{i}" type: "Scale" bottom: "c{i}" top: "c{i}" scale_param {{ bias_term: true }} }}
layer {{ name: "r{i}" type: "ReLU" bottom: "c{i}" top: "c{i}" }}
layer {{ name: "d{i}" type: "Dropout" bottom: "c{i}" top: "d{i}" }}
layer {{ name: "e{i}" type: "Eltwise" bottom: "{bottom}" bottom: "d{i}" top: "e{i}" }}"""

    names = ["x0", *(f"e{i}" for i in range(1, blocks + 1))]
    return f"""
layer {{ name: "in" type: "Input" top: "data" top: "label"
  input_param {{ shape {{ dim: 4 dim: 3 dim: {size} dim: {size} }} shape {{ dim: 4 }} }} }}
layer {{ name: "x0" type: "Convolution" bottom: "data" top: "x0"
  convolution_param {{ num_output: 8 kernel_size: 1 weight_filler {{ type: "msra" }} }} }}
{"".join(make_block(i, names[i - 1]) for i in range(1, blocks + 1))}
layer {{ name: "ip" type: "InnerProduct" bottom: "{names[-1]}" top: "ip"
  inner_product_param {{ num_output: 5 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "side" type: "InnerProduct" bottom: "e1" top: "side"
  inner_product_param {{ num_output: 5 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "side_loss" type: "SoftmaxWithLoss" bottom: "side" bottom: "label" top: "side_loss" loss_weight: 0.3 }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }}
"""


def run_step(net: Net, batch: int, **options: Any) -> Any:
    """Loss, gradients, blobs, state."""
    variables = net.init(KEY)

    def loss(params: Any, perturbations: Any) -> Any:
        return net.loss(params, variables.state, make_inputs(net, batch), KEY, perturbations=perturbations, **options)

    perturbations = {name: jnp.zeros((batch, *net.graph.blobs[name].shape[1:])) for name in options.get("blobs", ())}
    return net.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))(variables.params, perturbations)


def assert_same(actual: Any, expected: Any) -> None:
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for x, y in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-4, atol=2e-6 * (1 + float(jnp.abs(x).max())))


def make_remat_net(model: Any, **options: Any) -> Net:
    """A net that recomputes all that saves memory."""
    return Net(model, "TRAIN", remat="auto", memory_limit=1, **options)


@pytest.mark.parametrize("options", [{}, {"kernels": "reference"}, {"backward": "rules"}], ids=str)
def test_recomputation_gives_the_same_numbers(options: dict[str, Any]) -> None:
    net, plain = make_remat_net(make_residual_net(), **options), Net(make_residual_net(), "TRAIN", **options)
    blobs = ["e1", "c2", "loss"]
    assert_same(run_step(net, 6, blobs=blobs), run_step(plain, 6, blobs=blobs))
    assert net.rematerializer is not None
    assert all(groups.num_recomputed for groups in net.rematerializer._groups_by_shapes.values())


@pytest.mark.long
@pytest.mark.parametrize(("name", "batch"), [("lenet", 4), ("cifar10_full", 4)])
def test_recomputation_gives_the_same_numbers_for_configs(name: str, batch: int) -> None:
    model = CONFIGS / name / "train_val.prototxt"
    assert_same(run_step(make_remat_net(model), batch), run_step(Net(model, "TRAIN"), batch))


def test_the_loss_without_gradient_and_jit_is_the_same() -> None:
    net, plain = make_remat_net(make_residual_net()), Net(make_residual_net(), "TRAIN")
    variables, inputs = plain.init(KEY), make_inputs(plain, 4)
    assert_same(net.loss(*variables, inputs, KEY), plain.loss(*variables, inputs, KEY))


def test_nan_is_propagated() -> None:
    """The second run waits for the diffs by looking at their first numbers."""
    net = make_remat_net(make_residual_net())
    variables, inputs = net.init(KEY), make_inputs(net, 4)
    inputs["data"] = inputs["data"].at[0, 0, 0, 0].set(jnp.nan)
    grads = jax.jit(jax.grad(lambda p: net.loss(p, variables.state, inputs, KEY)[0]))(variables.params)
    assert all(jnp.isnan(blob).any() for blob in jax.tree.leaves(grads["x0"]))


@pytest.mark.long
def test_compiled_rematerialization_uses_less_memory() -> None:
    def measure_temporary_bytes(net: Net) -> int:
        variables, inputs = net.init(KEY), make_inputs(net, 4)
        grad = jax.jit(jax.grad(lambda p: net.loss(p, variables.state, inputs, KEY)[0]))
        return int(grad.lower(variables.params).compile().memory_analysis().temp_size_in_bytes)

    assert measure_temporary_bytes(make_remat_net(make_residual_net(20, 32))) < 0.7 * measure_temporary_bytes(
        Net(make_residual_net(20, 32), "TRAIN")
    )


def test_in_place_layers_and_splits_stay_in_one_group() -> None:
    net = make_remat_net(make_residual_net())
    assert net.rematerializer is not None
    chosen = net.rematerializer.choose_groups(PassInputs(*net.init(KEY), make_inputs(net, 4), KEY, {}))
    assert chosen.num_recomputed
    groups = [[layer for step in group for layer in step.layers] for group in chosen.groups]
    assert tuple(itertools.chain(*groups)) == net.graph.layers
    for group in groups:
        assert not group[0].is_in_place
        assert not group[-1].is_inserted_split


@pytest.mark.long
def test_layers_that_fit_are_not_recomputed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "caffejax.net")
    run_step(Net(make_residual_net(), "TRAIN", remat="auto"), 4)
    assert not caplog.messages
    run_step(make_remat_net(make_residual_net()), 4)
    assert [m.split()[0] for m in caplog.messages] == ["Recomputing", "training"]
    assert "the limit is 1 bytes" in caplog.messages[0]
    assert "use a smaller batch" in caplog.messages[1]


NUM_CALLS = {"forward": 0, "backward": 0}


@declare("Triple", on_host=True, top_shapes=lambda x: [x.shape])
def triple(x: np.ndarray) -> np.ndarray:
    NUM_CALLS["forward"] += 1
    return 3 * x


@triple.backward
def triple_backward(x: np.ndarray, *, y: np.ndarray, dy: np.ndarray) -> np.ndarray:
    NUM_CALLS["backward"] += 1
    return 3 * dy


def make_host_net(blocks: int, size: int) -> str:
    """Return a residual net in which two layers on the host follow the first block, one of them in place."""
    block = make_residual_net(blocks, size).replace('bottom: "e1"', 'bottom: "triple"')
    first, end, rest = block.partition('bottom: "d1" top: "e1" }')
    host = """layer { name: "triple" type: "Triple" bottom: "e1" top: "triple" }
      layer { name: "again" type: "Triple" bottom: "triple" top: "triple" }"""
    return first + end + host + rest


@pytest.mark.parametrize("blocks", [3, pytest.param(12, marks=pytest.mark.long)])
def test_host_layers_run_once_and_the_layers_between_them_are_recomputed(blocks: int) -> None:
    with register_temporarily(triple):
        nets = [make_remat_net(make_host_net(blocks, 2 * blocks)), Net(make_host_net(blocks, 2 * blocks), "TRAIN")]
    variables, inputs = nets[1].init(KEY), make_inputs(nets[1], 4)

    def compile_gradient(net: Net) -> Any:
        def loss(params: Any) -> Any:
            return net.loss(params, variables.state, inputs, KEY, blobs=["e1", "triple", "loss"])

        return jax.jit(jax.value_and_grad(loss, has_aux=True)).lower(variables.params).compile()

    programs = [compile_gradient(net) for net in nets]
    results, calls = [], []
    for program in programs:
        NUM_CALLS.update(forward=0, backward=0)
        results.append(jax.block_until_ready(program(variables.params)))
        calls.append(dict(NUM_CALLS))
    assert calls == [{"forward": 2, "backward": 2}] * 2
    assert_same(*results)
    num_bytes = [program.memory_analysis().temp_size_in_bytes for program in programs]
    assert num_bytes[0] < 0.7 * num_bytes[1] or blocks < 12


def test_a_net_that_runs_in_parts_says_that_it_recomputes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    net = Net(
        f"""layer {{ name: "in" type: "Input" top: "x" input_param {{ shape {{ dim: 4 dim: 2 }} }} }}
        layer {{ name: "c" type: "Python" bottom: "x" top: "y"
          python_param {{ module: "{__name__}" layer: "FirstRows" }} }}""",
        "TRAIN",
        remat="auto",
    )
    assert net.rematerializer is None
    assert "no layers are recomputed, because these may give their tops other shapes in each pass: 'c'" in caplog.text


class FirstRows:
    """Its forward pass gives the top its shape."""

    def setup(self, bottom: Any, top: Any) -> None:
        pass

    def reshape(self, bottom: Any, top: Any) -> None:
        top[0].reshape(*bottom[0].data.shape)

    def forward(self, bottom: Any, top: Any) -> None:
        top[0].reshape(2, *bottom[0].data.shape[1:])
        top[0].data[...] = bottom[0].data[:2]


def test_a_layer_on_valid_rows_is_recomputed() -> None:
    """A Concat along the rows depends on all rows of what a Filter selects, so it is a callback."""
    text = """layer { name: "in" type: "Input" top: "x" top: "s"
        input_param { shape { dim: 4 dim: 2 } shape { dim: 4 } } }
      layer { name: "ip" type: "InnerProduct" bottom: "x" top: "h" inner_product_param { num_output: 2
        weight_filler { type: "xavier" } } }
      layer { name: "f" type: "Filter" bottom: "h" bottom: "s" top: "y" }
      layer { name: "c" type: "Concat" bottom: "y" bottom: "h" top: "z" concat_param { axis: 0 } }
      layer { name: "t" type: "TanH" bottom: "z" top: "t" }
      layer { name: "l" type: "Reduction" bottom: "t" top: "l" loss_weight: 1 reduction_param { operation: SUMSQ } }"""
    nets = [Net(text, "TRAIN", remat="auto", memory_limit=1), Net(text, "TRAIN")]
    variables, rng = nets[0].init(KEY), np.random.default_rng(0)
    inputs = {"x": rng.normal(size=(4, 2)).astype("f"), "s": np.float32([1, 0, 1, 1])}

    def run(net: Net) -> Any:
        return jax.jit(jax.value_and_grad(net.loss, has_aux=True))(*variables, inputs)

    assert_same(run(nets[0]), jax.value_and_grad(nets[1].loss, has_aux=True)(*variables, inputs))


def make_digits_solver(**options: Any) -> Solver:
    param = read_solver(CONFIGS / "digits" / "lenet_solver.prototxt")
    param.random_seed = 1
    param.ClearField("test_interval")
    param.ClearField("test_iter")
    return Solver(param, file=CONFIGS / "digits" / "lenet_solver.prototxt", **options)


@pytest.mark.long
def test_a_solver_trains_to_the_same_params() -> None:
    plain_solver, remat_solver = make_digits_solver(), make_digits_solver(remat="auto", memory_limit=1)
    for solver in (plain_solver, remat_solver):
        solver.step(3)
        solver.close()
    assert_same(remat_solver.variables, plain_solver.variables)


def test_train_has_flags_for_rematerialization(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.prototxt").write_text(
        """layer { name: "in" type: "DummyData" top: "x" top: "y"
          dummy_data_param { shape { dim: 64 dim: 9 } shape { dim: 64 } } }
        layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 3 } }
        layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "y" top: "loss" }"""
    )
    (tmp_path / "solver.prototxt").write_text(
        """net: "net.prototxt" base_lr: 0.01 lr_policy: "fixed" max_iter: 1
        snapshot_after_train: false solver_mode: CPU"""
    )
    assert main(["train", f"--solver={tmp_path / 'solver.prototxt'}", "--remat=auto", "--memory_limit=1KiB"]) == 0
    err = capsys.readouterr().err
    assert "more than the limit of 1 KiB, even with recomputation" in err
    assert "Optimization Done" in err


def test_all_groups_but_the_last_are_recomputed() -> None:
    net = Net(CHAIN + 'layer { name: "loss" type: "Reduction" bottom: "conv" top: "loss" loss_weight: 1 }', "TRAIN")
    (part,) = net.layer_schedule.parts
    groups = RematGroups((part.steps[:3], part.steps[3:]), fixed=0, peak=0, peak_without_remat=0, fits=True)
    remat = apply_groups(net.layer_schedule, groups)
    assert get_step_names(remat) == get_step_names(net.layer_schedule)
    assert str(remat).splitlines() == [
        "compiled, and run again in the backward pass: data .. relu",
        "  fused: batchnorm + scale + relu",
        "compiled: tanh .. loss",
    ]
    variables, inputs = net.init(jax.random.key(0)), {"data": jax.random.normal(jax.random.key(1), (2, 3, 6, 6))}

    def loss(params: Any, schedule: LayerSchedule) -> jax.Array:
        return run_schedule(
            schedule,
            PassInputs(params, variables.state, inputs, None, {}),
            output_names=(),
            compute=compute_part_with_remat,
        ).loss

    expected, actual = (jax.grad(loss)(variables.params, schedule) for schedule in (net.layer_schedule, remat))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), expected, actual)


def test_residuals_are_counted_by_what_the_backward_pass_reads() -> None:
    """A convolution with ReLU stores its top, pooling its indices in int8, views and the inputs nothing."""
    net = Net(CONFIGS / "lenet" / "train_val.prototxt", "TRAIN")
    variables = net.init(KEY)
    units, values = measure_residuals(net.layer_schedule, PassInputs(*variables, make_inputs(net, 64), KEY, {}))
    residuals = {unit.steps[0].first_layer.name: unit.residuals for unit in units}
    top = {name: int(np.prod(blob.shape)) for name, blob in net.graph.blobs.items()}
    assert residuals["data"] == residuals["label"] == 0
    assert residuals["pool1"] == top["pool1"] * 5
    assert residuals["ip1"] >= top["ip1"] * 4
    assert sum(v.bytes for v in values if v.producer < 2) == 0


def iterate_groupings(n: int) -> Iterator[list[int]]:
    for count in range(n):
        for cuts in itertools.combinations(range(1, n), count):
            yield [0, *cuts]


@pytest.mark.parametrize("seed", range(8))
def test_the_search_finds_the_best_groups(seed: int) -> None:
    random = np.random.default_rng(seed)
    n = 8
    units = [Unit((Step((i,)),), *map(int, random.integers(1, 50, 2))) for i in range(n)]  # type: ignore[arg-type]
    producers = random.integers(0, n - 1, 10)
    values = [Value(int(random.integers(1, 30)), int(m), int(random.integers(m + 1, n))) for m in producers]

    def compute_peak(starts: list[int]) -> int:
        crossing_bytes, peak = 0, 0
        for a, b in zip(starts, [*starts[1:], n], strict=True):
            peak = max(
                peak, crossing_bytes + sum(u.residuals for u in units[a:b]) + max(u.live_bytes for u in units[a:b])
            )
            crossing_bytes += sum(v.bytes for v in values if a <= v.producer < b <= v.last_consumer)
        return peak

    lowest_peak = min(map(compute_peak, iterate_groupings(n)))
    for limit in (0, lowest_peak, (lowest_peak + compute_peak([0])) // 2, compute_peak([0])):
        chosen = search_groups(units, values, limit)
        starts = [int(group[0].layers[0]) for group in chosen.groups]  # type: ignore[call-overload]
        feasible_starts = [s for s in iterate_groupings(n) if compute_peak(s) <= max(limit, lowest_peak)]
        assert (chosen.peak, chosen.fits, chosen.peak_without_remat) == (
            compute_peak(starts),
            limit >= lowest_peak,
            compute_peak([0]),
        )
        assert chosen.peak <= max(limit, lowest_peak)
        assert chosen.num_recomputed == min(s[-1] for s in feasible_starts)
