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
from layer_nets import Replay, assert_as_recorded

from caffejax.errors import CaffejaxError
from caffejax.layers import layer_types
from caffejax.net import Net
from compile_flags import optimized_environment
from golden_cases import (
    ACCEPTED_CASES,
    KERNEL_TYPES,
    REJECTED_CASES,
    case_id,
    first_case_by_type,
    is_of_fork,
    layer_type_of_case,
)

HERE = Path(__file__).parent


def test_every_recorded_type_is_there() -> None:
    assert {c["type"] for c in ACCEPTED_CASES} <= set(layer_types())


FIRST = list(first_case_by_type([case for case in ACCEPTED_CASES if "stochastic" not in case]).values())


def marks(case: dict[str, Any], ways: tuple[str, ...], kernels: str) -> list[pytest.MarkDecorator]:
    """The first case of each type is quick; reference kernels repeat all others, and forks have many, which is long."""
    first = case in FIRST
    if is_of_fork(case) and not (first and "autodiff" in ways and kernels == "fast"):
        return [pytest.mark.optimized if kernels == "fast" else pytest.mark.long]
    if kernels == "reference":
        return [] if first and case["type"] in KERNEL_TYPES else [pytest.mark.long]
    return [pytest.mark.quick] if first else []


def ways_of(case: dict[str, Any]) -> list[tuple[tuple[str, ...], str]]:
    """The ways to compute gradients that one program has, and the kernels, for each program.

    A rule that is preferred to autodiff is used in either way. Few types of forks use the kernels.
    """
    rules = case["has_backward"] and not layer_type_of_case(case).gradient.overrides_autodiff
    if not is_of_fork(case):
        return [(("autodiff", "rules") if rules else ("autodiff",), "fast"), (("autodiff",), "reference")]
    reference = [(("autodiff",), "reference")] if case in FIRST else []
    return [(("autodiff",), "fast"), *([(("rules",), "fast")] if rules else []), *reference]


@pytest.mark.parametrize(
    ("case", "ways", "kernels"),
    [
        pytest.param(
            case, ways, kernels, id="-".join([case_id(case), *ways, kernels]), marks=marks(case, ways, kernels)
        )
        for case in ACCEPTED_CASES
        if "stochastic" not in case
        for ways, kernels in ways_of(case)
    ],
)
def test_recorded_case(case: dict[str, Any], ways: tuple[str, ...], kernels: str) -> None:
    assert_as_recorded(case, ways, kernels)


@pytest.mark.long
def test_first_cases_compiled_with_all_optimizations() -> None:
    """As users have them: here all else is compiled without."""
    path = os.pathsep.join([str(HERE), str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.run(
        [sys.executable, "-c", "from test_golden import check_first; check_first()"],
        env=optimized_environment() | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert int(process.stdout) > 40


def check_first() -> None:
    """Compare the first case of each of Caffe's types with the recording; print the number of cases."""
    assert "optimization_level" not in os.environ.get("XLA_FLAGS", "")
    cases = [case for case in FIRST if not is_of_fork(case) and case["type"] != "Python"]
    for case in cases:
        assert_as_recorded(case)
    print(len(cases))


@pytest.mark.parametrize("case", [c for c in REJECTED_CASES if c["type"] in layer_types()], ids=case_id)
def test_settings_that_the_fork_rejects(case: dict[str, Any]) -> None:
    def run() -> None:
        net = Net(case["path"].with_suffix(".prototxt"), case["phase"])
        inputs = {name: np.ones(net.graph.blobs[name].shape) for name in net.input_names}
        net.apply(*net.init(jax.random.key(0)), inputs)

    with pytest.raises(CaffejaxError, match="layer 'layer'"):
        run()


@pytest.mark.parametrize("backward", ["autodiff", "rules"])
@pytest.mark.parametrize("case", [c for c in ACCEPTED_CASES if "stochastic" in c], ids=case_id)
def test_random_layers_by_their_statistics(case: dict[str, Any], backward: str) -> None:
    replay, expected = Replay(case, backward), case["stochastic"]
    x = replay.inputs["data"]
    (top,), vjp, _ = jax.vjp(replay.tops, replay.params, replay.inputs, has_aux=True)
    keep_mask = np.asarray(top) != 0
    np.testing.assert_allclose(np.asarray(top)[keep_mask], (x * expected["scale"])[keep_mask], rtol=1e-6)
    assert abs(keep_mask.mean() - expected["keep_probability"]) < expected["tolerance"]
    (diff,) = vjp((jnp.ones_like(top),))[1].values()
    np.testing.assert_allclose(diff, keep_mask * np.float32(expected["scale"]), rtol=1e-6)
