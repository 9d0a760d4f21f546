"""The questions that are asked of layers of every type; a file of layers has a file of tests that asks them:

    test_recorded = recorded("LRN")
    test_properties = properties(layer_case("LRN", "lrn_param { local_size: 3 }", IMAGE, name="across"))

Each question is a function of a case, of a case and the kernels, or of all cases of a type, and of fixtures.
"""

import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from golden_cases import HAS_FORKS

from .case import BATCH, IMAGE, LABELS, MATRIX, Case, Shape, layer_case, normalizations_case
from .case_net import is_kernel_independent
from .export import (
    artifact_for_all_platforms_runs_without_caffejax,
    artifact_for_one_platform_calls_no_foreign_functions,
    artifact_with_symbolic_batch_accepts_any_number_of_rows,
    is_exported_with_symbolic_batch,
)
from .global_batch import is_asked_with_devices, sharded_results_equal_one_device, sums_over_rows
from .higher_order import jvp_is_the_product_with_the_gradient, second_derivatives_equal_central_differences
from .recorded import recorded
from .setting_rules import (
    documentation_names_accepted_enum_values,
    no_setting_is_ignored_silently,
    settings_are_rejected_or_ignored_as_documented,
    types_declare_the_messages_of_their_settings,
)
from .sharding import (
    gradients_of_sharded_examples_exchange_nothing,
    jit_over_a_mesh_equals_one_device,
    shard_map_equals_a_loop_over_shards,
)
from .traits import each_declared_trait_is_true
from .values_and_gradients import (
    autodiff_equals_backward_rules,
    gradient_is_the_derivative,
    has_recorded_rule,
    jit_equals_eager,
    types_without_kernels_have_one_program,
)
from .vmap import vmap_equals_a_loop

__all__ = [
    "BATCH",
    "IMAGE",
    "LABELS",
    "MATRIX",
    "NET_QUESTIONS",
    "TRANSFORM_QUESTIONS",
    "Case",
    "Shape",
    "fork_properties",
    "joint_batches",
    "layer_case",
    "list_cases",
    "normalizations_case",
    "properties",
    "recorded",
]

Question = Callable[..., None]
TESTS = Path(__file__).parents[1]

NET_QUESTIONS: tuple[Question, ...] = (
    jit_equals_eager,
    gradient_is_the_derivative,
    jit_over_a_mesh_equals_one_device,
    artifact_for_all_platforms_runs_without_caffejax,
    artifact_with_symbolic_batch_accepts_any_number_of_rows,
)
TRANSFORM_QUESTIONS = (
    *NET_QUESTIONS,
    vmap_equals_a_loop,
    jvp_is_the_product_with_the_gradient,
    second_derivatives_equal_central_differences,
    shard_map_equals_a_loop_over_shards,
    gradients_of_sharded_examples_exchange_nothing,
)
# of all cases of forks' types; the other questions are asked of the first one
GRADIENT_QUESTIONS = (
    gradient_is_the_derivative,
    autodiff_equals_backward_rules,
    each_declared_trait_is_true,
    sharded_results_equal_one_device,
)
SETTING_QUESTIONS = (
    settings_are_rejected_or_ignored_as_documented,
    documentation_names_accepted_enum_values,
    types_declare_the_messages_of_their_settings,
    no_setting_is_ignored_silently,
)
LAYER_QUESTIONS = (
    *TRANSFORM_QUESTIONS,
    *GRADIENT_QUESTIONS[1:],
    artifact_for_one_platform_calls_no_foreign_functions,
    types_without_kernels_have_one_program,
)

_cases: list[Case] = []  # of the files of tests that are imported


def properties(*cases: Case, questions: Iterable[Question] = LAYER_QUESTIONS) -> Question:
    """Return a test that asks these questions of cases, and of their types those about settings.

    Reference kernels, and what few types need, are asked by the long tests.
    """
    _add_cases(cases)
    return _make_test([*_ask_cases(cases, tuple(questions)), *_ask_types(cases)])


def fork_properties(*cases: Case) -> Question:
    """Return a test that asks all questions of the first case of each type of forks, or variant of one, and of the
    others those about gradients. All but those about settings are long."""
    _add_cases(cases)
    firsts: dict[Any, Case] = {}
    for case in cases:
        firsts.setdefault(case.name if case.layer_type.name == "Python" else case.layer_type, case)
    params = [
        pytest.param(*param.values, id=param.id, marks=pytest.mark.long)
        for case in cases
        for param in _ask_cases(
            [case], LAYER_QUESTIONS[:-1] if case in firsts.values() else GRADIENT_QUESTIONS, is_fork=True
        )
    ]
    return _make_test([*params, *_ask_types(case for case in cases if case.layer_type.docs.origin != "BVLC")])


def joint_batches(*cases: Case) -> Question:
    """Return a test that devices which share a batch compute what one does, in cases that matter only for them."""
    return _make_test(
        [
            pytest.param(
                functools.partial(sharded_results_equal_one_device, num_devices=n),
                {"case": case},
                id=f"{case.name}-sharded_results_equal_one_device-{n}",
                marks=[] if n == 4 else pytest.mark.long,
            )
            for case in cases
            for n in ((2, 4, 8) if case is cases[0] else (4,))
        ]
    )


def list_cases() -> list[Case]:
    """Return the cases of all test files of types, which are imported."""
    for room in ("core", "forks") if HAS_FORKS else ("core",):
        for path in sorted((TESTS / room).rglob("test_*.py")):
            if re.search(r"= (recorded|(fork_)?properties)\(", path.read_text()):
                # as pytest does: forks' folders are packages, core's are not
                folder, name = (
                    (path.parent, path.stem) if room == "core" else (TESTS / room, f"{path.parent.name}.{path.stem}")
                )
                if str(folder) not in sys.path:
                    sys.path.append(str(folder))
                import_module(name)
    return [case for case in _cases if not case.is_net]


def _add_cases(cases: Iterable[Case]) -> None:
    for case in cases:
        assert case not in _cases, f"two cases are named {case.name}"
        _cases.append(case)


def _make_test(params: list[Any]) -> Question:
    @pytest.mark.parametrize(("question", "arguments"), params)
    def ask(
        question: Question,
        arguments: dict[str, Any],
        request: pytest.FixtureRequest,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        if arguments.get("kernels") == "reference" and is_kernel_independent(arguments["case"]):
            return  # the program is that of the fast kernels
        monkeypatch.chdir(tmp_path)  # HDF5Output writes files
        names = {"eight_devices", "fresh_process", "recording_process"} & inspect.signature(question).parameters.keys()
        question(**arguments, **{name: request.getfixturevalue(name) for name in names})

    return ask


def _ask_cases(cases: Iterable[Case], questions: Iterable[Question], *, is_fork: bool = False) -> list[Any]:
    """Return params for the questions of each case, and for both kernels: types of forks use the kernels of others."""
    params = []
    seen_types: set[str] = set()
    for case in cases:
        is_first = case.layer_type.name not in seen_types
        seen_types.add(case.layer_type.name)
        for question in questions:
            if not _applies(question, case, is_fork):
                continue
            if "kernels" not in inspect.signature(question).parameters:
                params.append(
                    _make_param(question, {"case": case}, case.name, is_long=_is_long(question, case, is_first))
                )
                continue
            for kernels in ("fast",) if is_fork else ("fast", "reference"):
                arguments = {"case": case, "kernels": kernels}
                params.append(
                    _make_param(question, arguments, f"{case.name}-{kernels}", is_long=kernels == "reference")
                )
    return params


def _ask_types(cases: Iterable[Case]) -> list[Any]:
    """Return params for the questions about the settings of each type."""
    cases_by_type: dict[Any, list[Case]] = {}
    for case in cases:
        if not case.is_net:
            cases_by_type.setdefault(case.layer_type, []).append(case)
    return [
        _make_param(question, {"cases": cases_of_type}, cases_of_type[0].name, is_long=False)
        for cases_of_type in cases_by_type.values()
        for question in SETTING_QUESTIONS
    ]


def _make_param(question: Question, arguments: dict[str, Any], name: str, *, is_long: bool) -> Any:
    marks = [pytest.mark.long] if is_long else []
    return pytest.param(question, arguments, id=f"{name}-{question.__name__}", marks=marks)


def _applies(question: Question, case: Case, is_fork: bool) -> bool:
    """Return whether a question is asked of a case: not what another question asks, too."""
    if question is autodiff_equals_backward_rules:
        return not has_recorded_rule(case)
    if question is artifact_for_all_platforms_runs_without_caffejax:
        return not is_exported_with_symbolic_batch(case)
    if question is artifact_for_one_platform_calls_no_foreign_functions:
        return "Convolution" in case.name or "InnerProduct" in case.name
    return question is not sharded_results_equal_one_device or is_asked_with_devices(case, is_fork)


def _is_long(question: Question, case: Case, is_first: bool) -> bool:
    if question is sharded_results_equal_one_device:
        return not sums_over_rows(case)
    return question is types_without_kernels_have_one_program or not is_first
