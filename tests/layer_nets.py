"""Helpers for tests of layers: recorded cases as nets, and small nets around one layer."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import caffejax
from caffejax.core.layers import Traced
from caffejax.core.layers.dispatch import forward
from caffejax.core.layers.row_padding import strip_padding
from caffejax.core.ops.implementations import find_form
from caffejax.core.program.net import Net
from golden_cases import (
    ACCEPTED_CASES,
    correct_arrays,
    find_first_cases,
)

FIRST_RECORDED_CASES = list(find_first_cases([case for case in ACCEPTED_CASES if "stochastic" not in case]).values())


class Replay:
    """A recorded case as a net: the layer under test as a function of its blobs and bottoms."""

    def __init__(
        self, case: dict[str, Any], backward: Any = "autodiff", kernels: Any = "fast", precision: Any = "float32"
    ) -> None:
        path = case["path"]
        self.recorded = correct_arrays(case, dict(np.load(path.with_suffix(".npz"))))
        self.net = Net(
            path.with_suffix(".prototxt"), case["phase"], backward=backward, kernels=kernels, precision=precision
        )
        self.layer = self.net.graph.layer("layer")
        params, self.state = self.net.init(jax.random.key(0))
        # a Parameter layer is named like its top, whose value is recorded as a bottom
        self.params: Any = {
            name: {i: self.recorded.get(f"bottom/{name}", b) for i, b in blobs.items()}
            for name, blobs in params.items()
        }
        for value, param in zip(self.list_recorded("param"), self.layer.params, strict=True):
            (self.params if param.spec.learnable else self.state).setdefault("layer", {})[param.slot.name] = value
        self.inputs = {name: self.recorded[f"bottom/{name}"] for name in self.net.input_names}

    def list_recorded(self, prefix: str) -> list[np.ndarray]:
        n = sum(key.startswith(f"{prefix}/") for key in self.recorded)
        return [self.recorded[f"{prefix}/{i}"] for i in range(n)]

    def list_changed_blobs(self) -> list[tuple[int, np.ndarray]]:
        """Return the index and the new value of each blob that the forward pass changed."""
        return sorted((int(k.split("/")[1]), v) for k, v in self.recorded.items() if k.startswith("param_after/"))

    def compute_tops(self, params: Any, inputs: Any) -> tuple[tuple[jax.Array, ...], Any]:
        """Return the tops and the new state."""
        state = self.state
        for _ in range(int(self.recorded.get("forwards", 1))):
            values, state = self.net.apply(params, state, inputs, key=jax.random.key(1), blobs=self.layer.tops)
        return tuple(values[top] for top in self.layer.tops), state

    def compute_results(self, backward: bool, params: Any, inputs: Any) -> tuple[Any, ...]:
        """Return tops, new state, and the diffs of params and inputs for the recorded top diffs."""
        if not backward:
            return *self.compute_tops(params, inputs), None, None
        tops, vjp, state = jax.vjp(self.compute_tops, params, inputs, has_aux=True)
        recorded = [self.recorded.get(f"top_diff/{name}") for name in self.layer.tops]
        diffs = [
            jnp.zeros_like(t) if d is None else jnp.asarray(d, t.dtype) for t, d in zip(tops, recorded, strict=True)
        ]
        return tops, state, *vjp(tuple(diffs))

    def run(self, backward: bool) -> tuple[Any, ...]:
        """Return the results, computed by a compiled function."""
        return tuple(self.net.jit(functools.partial(self.compute_results, backward))(self.params, self.inputs))


def has_overwritten_diff(replay: Replay, i: int) -> bool:
    """Return whether the fork discards the param's previous diff, as some factors of BVLC's Scale do."""
    if replay.layer.type.gradient.overwrites_diffs:
        return True
    if replay.layer.type.name != "Scale" or len(replay.layer.bottoms) == 2 or i > 0:
        return False
    bottom_shape = replay.net.graph.blobs[replay.layer.bottoms[0]].shape
    factor_shape = replay.layer.params[0].spec.shape
    spans_first_axis = replay.layer.context.param.axis in (0, -len(bottom_shape))
    return math.prod(factor_shape) == math.prod(bottom_shape) or (spans_first_axis and math.prod(factor_shape) > 1)


def assert_as_recorded(
    case: dict[str, Any], backward_modes: Sequence[str] = ("autodiff",), kernels: Any = "fast"
) -> None:
    """Run a recorded case in each backward mode, and compare tops, state and diffs with Caffe's."""
    replays = [Replay(case, backward_mode, kernels) for backward_mode in backward_modes]
    for backward_mode, replay, results in zip(
        backward_modes, replays, run_together(replays, case["has_backward"]), strict=True
    ):
        _assert_as_recorded(case, replay, results, backward_mode)


def run_together(replays: Sequence[Replay], backward: bool) -> list[tuple[Any, ...]]:
    """Return the results of replays of one case, computed by one program, which compiles faster than several."""
    first = replays[0]

    def all_results(params: Any, inputs: Any) -> list[tuple[Any, ...]]:
        return [replay.compute_results(backward, params, inputs) for replay in replays]

    return first.net.jit(all_results)(first.params, first.inputs)


def _assert_as_recorded(case: dict[str, Any], replay: Replay, results: tuple[Any, ...], backward_mode: str) -> None:
    tops, state, param_diffs, bottom_diffs = results
    if replay.layer.type.traits.pads_rows:
        tops = tuple(strip_padding(top) for top in tops)
    for name, top in zip(replay.layer.tops, tops, strict=True):
        expected = replay.recorded[f"top/{name}"]
        assert top.shape == expected.shape
        np.testing.assert_allclose(
            top, expected, atol=case["atol"], rtol=case["rtol"], err_msg=f"{backward_mode}: {name}"
        )
    rewritten_params = replay.net.rewrite_params(replay.params)
    for i, expected in replay.list_changed_blobs():
        blob = (rewritten_params if replay.layer.params[i].spec.learnable else state)["layer"][
            replay.layer.params[i].slot.name
        ]
        np.testing.assert_allclose(
            blob, expected, atol=case["atol"], rtol=case["rtol"], err_msg=f"{backward_mode}: {i}"
        )
    if not case["has_backward"]:
        return
    tolerances = {"atol": max(case["atol"], 1e-7), "rtol": case["rtol"]}
    num_compared = 0
    parameters = {name: diffs["weight"] for name, diffs in param_diffs.items() if name != "layer"}
    for name, diff in {**bottom_diffs, **parameters}.items():
        if f"bottom_diff/{name}" in replay.recorded:
            expected = replay.recorded[f"bottom_diff/{name}"]
            if case.get("ties_depend_on_sort"):  # then as many places have a diff, but not the same
                diff, expected = np.sort(np.ravel(diff)), np.sort(np.ravel(expected))
            np.testing.assert_allclose(diff, expected, **tolerances, err_msg=f"{backward_mode}: {name}")
            num_compared += 1
    for i, expected in enumerate(replay.list_recorded("param_diff")):
        previous_diff = 0 if has_overwritten_diff(replay, i) else replay.recorded.get(f"param_diff_before/{i}", 0)
        diff = param_diffs.get("layer", {}).get(replay.layer.params[i].slot.name, 0)  # statistics never get one
        np.testing.assert_allclose(diff + previous_diff, expected, **tolerances, err_msg=f"{backward_mode}: param {i}")
        num_compared += 1
    assert num_compared, "the case compares nothing"


def net_text(layer_type: str, fields: str, shapes: list[tuple[int, ...]], tops: int = 1) -> str:
    """Return a net of Input layers b0, b1, ... and one layer named "layer" with tops t0, t1, ..."""
    inputs = [
        f'layer {{ name: "b{i}" type: "Input" top: "b{i}" input_param {{ shape {{ '
        f"{' '.join(f'dim: {n}' for n in shape)} }} }} }}"
        for i, shape in enumerate(shapes)
    ]
    bottoms = " ".join(f'bottom: "b{i}"' for i in range(len(shapes)))
    top_fields = " ".join(f'top: "t{i}"' for i in range(tops))
    return "\n".join([*inputs, f'layer {{ name: "layer" type: "{layer_type}" {bottoms} {top_fields} {fields} }}'])


def name_tops(count: int) -> str:
    """Return the fields for several tops; one, which nearly all types have, needs none."""
    return "".join(f' top: "t{i}"' for i in range(count)) if count > 1 else ""


def run_layer(
    layer_type: str, fields: str, *bottoms: Any, tops: int = 1, phase: Any = "TEST", seed: int | None = 1
) -> list[np.ndarray]:
    """Return the tops of a single layer with these bottoms; `fields` are those of LayerParameter if it has several."""
    arrays = [np.asarray(b, np.float32) for b in bottoms]
    function = caffejax.layer(layer_type, fields + name_tops(tops), phase)
    params, state = function.init(jax.random.key(0), *arrays)
    key = None if seed is None else jax.random.key(seed)
    result, _ = function(params, *arrays, state=state, key=key)
    return [np.asarray(top) for top in (result if isinstance(result, tuple) else (result,))]


def first_top(layer_type: str, fields: str, *bottoms: Any, **options: Any) -> np.ndarray:
    return run_layer(layer_type, fields, *bottoms, **options)[0]


def differentiate_layer(
    layer_type: str, fields: str, *bottoms: Any, tops: int = 1, backward: Any = "autodiff"
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the tops of a single layer in TRAIN, and the gradients of the sum of the first top by the bottoms."""
    arrays = [np.asarray(b, np.float32) for b in bottoms]
    function = caffejax.layer(layer_type, fields + name_tops(tops), "TRAIN", backward=backward)
    params, state = function.init(jax.random.key(0), *arrays)

    def sum_first_top(*arrays: Any) -> Any:
        result, _ = function(params, *arrays, state=state)
        results = result if isinstance(result, tuple) else (result,)
        return jnp.sum(results[0]), results

    (_, results), diffs = jax.jit(jax.value_and_grad(sum_first_top, range(len(arrays)), has_aux=True))(*arrays)
    return [np.asarray(top) for top in results], [np.asarray(diff) for diff in diffs]


def find_host_form(layer_type: Any) -> Callable[..., Any] | None:
    """Return the function that computes a type's tops from NumPy arrays, or None."""
    implementation = layer_type.implementation
    return find_form(implementation.forward, "host") if isinstance(implementation, Traced) else None


def assert_host_equals_compiled(context: Any, *batches: tuple[np.ndarray, ...]) -> None:
    """Compare a layer on NumPy arrays with the compiled layer, for each tuple of bottoms."""
    compiled = jax.jit(lambda bottoms: forward(context, (), bottoms)[0])
    form = find_host_form(context.type)
    assert form is not None
    for bottoms in batches:
        host_top = context.call(form, *bottoms)
        assert isinstance(host_top, np.ndarray)
        np.testing.assert_allclose(host_top, compiled(bottoms)[0], rtol=1e-5, atol=1e-6)


def draw_settings(random: np.random.Generator, choices: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
    """Draw a value for each setting from its choices; None omits the setting."""
    settings = {name: values[random.integers(len(values))] for name, values in choices.items()}
    return {name: value for name, value in settings.items() if value is not None}


def format_field(name: str, value: Any) -> str:
    """Return a setting as text; a list is a repeated field."""
    values = value if isinstance(value, list) else [value]
    return " ".join(f"{name}: {str(v).lower() if isinstance(v, bool) else v}" for v in values)


def format_param(param: str, settings: dict[str, Any]) -> str:
    return f"{param} {{ {' '.join(format_field(name, value) for name, value in settings.items())} }}"


_RANDOM = np.random.default_rng(0)


def draw_normal(*shape: int) -> np.ndarray:
    """Draw float32 numbers, others with each call."""
    return _RANDOM.normal(size=shape).astype(np.float32)
