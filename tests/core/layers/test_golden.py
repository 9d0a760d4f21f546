"""Every recorded case of every layer: forward, and the gradients by autodiff and by the hand-written rule."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax.base.errors import CaffejaxError
from caffejax.core.layers import layer_types
from caffejax.core.program.net import Net
from compile_flags import make_optimized_environment
from golden_cases import (
    ACCEPTED_CASES,
    KERNEL_TYPES,
    REJECTED_CASES,
    find_first_cases,
    format_case_id,
    get_layer_type_of_case,
    is_fork_case,
)
from layer_nets import Replay, assert_as_recorded

TESTS_FOLDER = Path(__file__).parent


def test_every_recorded_type_is_registered() -> None:
    assert {c["type"] for c in ACCEPTED_CASES} <= set(layer_types())


FIRST_CASES = list(find_first_cases([case for case in ACCEPTED_CASES if "stochastic" not in case]).values())


def list_marks(case: dict[str, Any], backward_modes: tuple[str, ...], kernels: str) -> list[pytest.MarkDecorator]:
    """Return the marks of a case.

    The first case of each type is quick. Reference kernels, which repeat other cases, and most cases of forks are not
    in the default set.
    """
    is_first = case in FIRST_CASES
    if is_fork_case(case) and not (is_first and "autodiff" in backward_modes and kernels == "fast"):
        return [pytest.mark.optimized if kernels == "fast" else pytest.mark.long]
    if kernels == "reference":
        return [] if is_first and case["type"] in KERNEL_TYPES else [pytest.mark.long]
    return [pytest.mark.quick] if is_first else []


def list_programs(case: dict[str, Any]) -> list[tuple[tuple[str, ...], str]]:
    """Return (`backward` modes, kernels) for each program that is compiled for a case.

    Both modes are the same for a rule that overrides autodiff. Few types of forks use the kernels; the rules of their
    first cases, which are in the default set, are not.
    """
    rules = case["has_backward"] and not get_layer_type_of_case(case).gradient.overrides_autodiff
    modes = ("autodiff", "rules") if rules else ("autodiff",)
    if is_fork_case(case) and case not in FIRST_CASES:
        return [(modes, "fast")]
    reference = (("autodiff",), "reference")
    if is_fork_case(case):
        return [*(((mode,), "fast") for mode in modes), reference]
    return [(modes, "fast"), reference]


@pytest.mark.parametrize(
    ("case", "backward_modes", "kernels"),
    [
        pytest.param(
            case,
            backward_modes,
            kernels,
            id="-".join([format_case_id(case), *backward_modes, kernels]),
            marks=list_marks(case, backward_modes, kernels),
        )
        for case in ACCEPTED_CASES
        if "stochastic" not in case
        for backward_modes, kernels in list_programs(case)
    ],
)
def test_recorded_case(case: dict[str, Any], backward_modes: tuple[str, ...], kernels: str) -> None:
    assert_as_recorded(case, backward_modes, kernels)


@pytest.mark.long
def test_first_cases_compiled_with_all_optimizations() -> None:
    """Users compile with all optimizations; the other tests do not."""
    path = os.pathsep.join(
        [str(TESTS_FOLDER), str(TESTS_FOLDER.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    process = subprocess.run(
        [sys.executable, "-c", "from test_golden import check_first_cases; check_first_cases()"],
        env=make_optimized_environment() | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert int(process.stdout) > 40


def check_first_cases() -> None:
    """Compare the first case of each of Caffe's types with the recording; print the number of cases."""
    assert "optimization_level" not in os.environ.get("XLA_FLAGS", "")
    cases = [case for case in FIRST_CASES if not is_fork_case(case) and case["type"] != "Python"]
    for case in cases:
        assert_as_recorded(case)
    print(len(cases))


@pytest.mark.parametrize("case", [c for c in REJECTED_CASES if c["type"] in layer_types()], ids=format_case_id)
def test_settings_that_a_fork_rejects_are_refused(case: dict[str, Any]) -> None:
    def run() -> None:
        net = Net(case["path"].with_suffix(".prototxt"), case["phase"])
        inputs = {name: np.ones(net.graph.blobs[name].shape) for name in net.input_names}
        net.apply(*net.init(jax.random.key(0)), inputs)

    with pytest.raises(CaffejaxError, match="layer 'layer'"):
        run()


@pytest.mark.parametrize("backward", ["autodiff", "rules"])
@pytest.mark.parametrize("case", [c for c in ACCEPTED_CASES if "stochastic" in c], ids=format_case_id)
def test_random_layers_have_the_recorded_statistics(case: dict[str, Any], backward: str) -> None:
    replay, expected = Replay(case, backward), case["stochastic"]
    x = replay.inputs["data"]
    (top,), vjp, _ = jax.vjp(replay.compute_tops, replay.params, replay.inputs, has_aux=True)
    is_kept = np.asarray(top) != 0
    np.testing.assert_allclose(np.asarray(top)[is_kept], (x * expected["scale"])[is_kept], rtol=1e-6)
    assert abs(is_kept.mean() - expected["keep_probability"]) < expected["tolerance"]
    (diff,) = vjp((jnp.ones_like(top),))[1].values()
    np.testing.assert_allclose(diff, is_kept * np.float32(expected["scale"]), rtol=1e-6)
