"""Every recorded case of BVLC Caffe's layers: forward, and the gradients by autodiff and by the hand-written rule."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax.core.layers import layer_types
from compile_flags import make_optimized_environment
from golden_cases import ACCEPTED_CASES, format_case_id, is_fork_case
from layer_nets import FIRST_RECORDED_CASES, Replay, assert_as_recorded, parametrize_recorded

TESTS_FOLDER = Path(__file__).parent


CASES = [case for case in ACCEPTED_CASES if not is_fork_case(case)]
FIRST_CASES = [case for case in FIRST_RECORDED_CASES if not is_fork_case(case)]


def test_every_recorded_type_is_registered() -> None:
    assert {c["type"] for c in CASES} <= set(layer_types())


@parametrize_recorded(is_fork=False)
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
    cases = [case for case in FIRST_CASES if case["type"] != "Python"]
    for case in cases:
        assert_as_recorded(case)
    print(len(cases))


@pytest.mark.parametrize("backward", ["autodiff", "rules"])
@pytest.mark.parametrize("case", [c for c in CASES if "stochastic" in c], ids=format_case_id)
def test_random_layers_have_the_recorded_statistics(case: dict[str, Any], backward: str) -> None:
    replay, expected = Replay(case, backward), case["stochastic"]
    x = replay.inputs["data"]
    (top,), vjp, _ = jax.vjp(replay.compute_tops, replay.params, replay.inputs, has_aux=True)
    is_kept = np.asarray(top) != 0
    np.testing.assert_allclose(np.asarray(top)[is_kept], (x * expected["scale"])[is_kept], rtol=1e-6)
    assert abs(is_kept.mean() - expected["keep_probability"]) < expected["tolerance"]
    (diff,) = vjp((jnp.ones_like(top),))[1].values()
    np.testing.assert_allclose(diff, is_kept * np.float32(expected["scale"]), rtol=1e-6)
