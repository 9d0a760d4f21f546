"""The questions about what Caffe and its forks computed, asked of each recorded case of a type."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import caffejax
from caffejax.base.errors import CaffejaxError
from caffejax.core.layers.row_padding import strip_padding
from caffejax.core.program.net import Net
from golden_cases import FORKS, KERNEL_TYPES, RECORDED_CASES, format_case_id, get_layer_type_of_case, is_fork_case
from layer_nets import FIRST_RECORDED_CASES, Replay, assert_as_recorded

_asked_cases: list[dict[str, Any]] = []


def recorded(*types: str, family: str | None = None) -> Any:
    """Return a test that compares types with what BVLC Caffe computed, or the forks of a family.

    Of a fork's type the first case by autodiff is in the default set; reference kernels are asked by the long tests,
    but for one case of the types that have such kernels.
    """
    cases = [
        case
        for case in RECORDED_CASES
        if case["type"] in types
        and (case["path"].is_relative_to(FORKS / str(family)) if family else not is_fork_case(case))
    ]
    assert {case["type"] for case in cases} == set(types), f"of {types} some are not recorded"
    _asked_cases.extend(cases)

    @pytest.mark.parametrize(("question", "arguments"), [param for case in cases for param in _ask(case)])
    def ask(question: Any, arguments: tuple[Any, ...]) -> None:
        question(*arguments)

    return ask


def list_asked_cases() -> list[dict[str, Any]]:
    """Return the cases that the test files that are imported ask about."""
    return list(_asked_cases)


def _ask(case: dict[str, Any]) -> list[Any]:
    is_first = case in FIRST_RECORDED_CASES
    if case.get("rejected"):
        return [_make_param(settings_that_caffe_rejects_are_refused, case)]
    if "stochastic" in case:
        return [
            _make_param(random_layers_have_the_recorded_statistics, case, backward)
            for backward in ("autodiff", "rules")
        ]
    programs = [
        _make_param(recorded_case, case, modes, kernels, is_long=_is_long(case, modes, kernels))
        for modes, kernels in _list_programs(case)
    ]
    return [*programs, _make_param(tops_are_as_recorded, case, is_long=not is_first or is_fork_case(case))]


def _make_param(question: Any, case: dict[str, Any], *arguments: Any, is_long: bool = False) -> Any:
    words = [word for a in arguments for word in ([a] if isinstance(a, str) else a)]
    name = "-".join([format_case_id(case), *words, question.__name__])
    return pytest.param(question, (case, *arguments), id=name, marks=[pytest.mark.long] if is_long else [])


def _is_long(case: dict[str, Any], backward_modes: tuple[str, ...], kernels: str) -> bool:
    is_first = case in FIRST_RECORDED_CASES
    if is_fork_case(case):
        return not (is_first and "autodiff" in backward_modes and kernels == "fast")
    return kernels == "reference" and not (is_first and case["type"] in KERNEL_TYPES)


def _list_programs(case: dict[str, Any]) -> list[tuple[tuple[str, ...], str]]:
    """Return (`backward` modes, kernels) for each program that is compiled for a case.

    Both modes are the same for a rule that overrides autodiff. Few types of forks use the kernels; the rules of their
    first cases, which are in the default set, are not.
    """
    rules = case["has_backward"] and not get_layer_type_of_case(case).gradient.overrides_autodiff
    modes = ("autodiff", "rules") if rules else ("autodiff",)
    if is_fork_case(case) and case not in FIRST_RECORDED_CASES:
        return [(modes, "fast")]
    reference = (("autodiff",), "reference")
    if is_fork_case(case):
        return [*(((mode,), "fast") for mode in modes), reference]
    return [(modes, "fast"), reference]


def recorded_case(case: dict[str, Any], backward_modes: tuple[str, ...], kernels: str) -> None:
    assert_as_recorded(case, backward_modes, kernels)


def random_layers_have_the_recorded_statistics(case: dict[str, Any], backward: str) -> None:
    replay, expected = Replay(case, backward), case["stochastic"]
    x = replay.inputs["data"]
    (top,), vjp, _ = jax.vjp(replay.compute_tops, replay.params, replay.inputs, has_aux=True)
    is_kept = np.asarray(top) != 0
    np.testing.assert_allclose(np.asarray(top)[is_kept], (x * expected["scale"])[is_kept], rtol=1e-6)
    assert abs(is_kept.mean() - expected["keep_probability"]) < expected["tolerance"]
    (diff,) = vjp((jnp.ones_like(top),))[1].values()
    np.testing.assert_allclose(diff, is_kept * np.float32(expected["scale"]), rtol=1e-6)


def settings_that_caffe_rejects_are_refused(case: dict[str, Any]) -> None:
    def run() -> None:
        net = Net(case["path"].with_suffix(".prototxt"), case["phase"])
        inputs = {name: np.ones(net.graph.blobs[name].shape) for name in net.input_names}
        net.apply(*net.init(jax.random.key(0)), inputs)

    with pytest.raises(CaffejaxError, match="layer 'layer'"):
        run()


class RecordedLayer:
    """A recorded case as a function of its params and bottoms: `caffejax.layer`."""

    def __init__(self, case: dict[str, Any]) -> None:
        replay = Replay(case)
        self.recorded, self.layer = replay.recorded, replay.layer
        definition = replay.layer.definition.layer
        self.function = caffejax.layer(definition.type, definition, phase=case["phase"])
        self.bottoms = [self.recorded[f"bottom/{name}"] for name in self.layer.bottoms]
        initial = self.function.init(jax.random.key(0), *self.bottoms)
        self.params = initial.params | replay.params.get("layer", {})
        self.state = initial.state | replay.state.get("layer", {})

    def compute_tops(self, params: Any, *bottoms: Any) -> tuple[Any, ...]:
        state = self.state
        for _ in range(int(self.recorded.get("forwards", 1))):
            tops, state = self.function(params, *bottoms, state=state, key=jax.random.key(0))
        return tops if isinstance(tops, tuple) else (tops,)


def tops_are_as_recorded(case: dict[str, Any]) -> None:
    """The tops of `caffejax.layer`, called without a net.

    It is one program, because the steps of a long operation would each be compiled; rows that the host chooses are
    padded there.
    """
    layer = RecordedLayer(case)
    compute_tops = layer.compute_tops if layer.layer.type.on_host else jax.jit(layer.compute_tops)
    tops = compute_tops(layer.params, *layer.bottoms)
    assert len(tops) == len(layer.layer.tops)
    for name, top in zip(layer.layer.tops, tops, strict=True):
        expected = layer.recorded[f"top/{name}"]
        if layer.layer.type.traits.pads_rows:
            top = strip_padding(top)
        assert top.shape == expected.shape
        np.testing.assert_allclose(top, expected, atol=case["atol"], rtol=case["rtol"])
