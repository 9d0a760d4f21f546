"""Every type has a file of tests, and every recorded case is asked about; what users compile equals Caffe, too."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from caffejax.core.layers import layer_types
from compile_flags import make_optimized_environment
from golden_cases import RECORDED_CASES
from layer_nets import FIRST_RECORDED_CASES, assert_as_recorded
from layer_suite import list_cases
from layer_suite.recorded import list_asked_cases


def test_every_recorded_case_is_asked_about() -> None:
    list_cases()
    asked_paths = [case["path"] for case in list_asked_cases()]
    assert sorted(asked_paths) == sorted(case["path"] for case in RECORDED_CASES)
    assert len(asked_paths) > 300


def test_every_type_that_computes_has_a_case() -> None:
    asked_types = set().union(*(case.types for case in list_cases()))
    computing_types = {name for name, layer_type in layer_types().items() if not layer_type.is_input}
    assert computing_types <= asked_types
    assert len(computing_types) > 50


@pytest.mark.long
def test_first_cases_compiled_with_all_optimizations() -> None:
    """Users compile with all optimizations; the other tests do not."""
    tests = Path(__file__).parents[2]
    path = os.pathsep.join([str(Path(__file__).parent), str(tests), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.run(
        [sys.executable, "-c", "from test_every_type import check_first_cases; check_first_cases()"],
        env=make_optimized_environment() | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert int(process.stdout) > 40


def check_first_cases() -> None:
    """Compare the first case of each type with the recording; print the number of cases."""
    assert "optimization_level" not in os.environ.get("XLA_FLAGS", "")
    cases = [case for case in FIRST_RECORDED_CASES if case["type"] != "Python"]
    for case in cases:
        assert_as_recorded(case)
    print(len(cases))
