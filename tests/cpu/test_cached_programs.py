"""Compiled steps and tests are loaded from disk without tracing, and never in place of other programs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax import declare
from caffejax.core.layers import register_temporarily
from caffejax.core.ops import compilation
from caffejax.core.program import interpreter
from caffejax.core.schema.caffe_pb2 import SolverParameter
from caffejax.core.solver.solver import Solver
from caffejax.cpu.kernels import executable_cache
from caffejax.cpu.kernels.executable_cache import ProgramCacheConfig

NET = """
    layer { name: "x" type: "Input" top: "x" top: "label"
      input_param { shape { dim: 4 dim: 6 } shape { dim: 4 } } }
    layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip"
      inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
    layer { name: "act" type: "Sigmoid" bottom: "ip" top: "act" }
    layer { name: "loss" type: "SoftmaxWithLoss" bottom: "act" bottom: "label" top: "loss" }
"""
DATA = {"x": np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6), "label": np.arange(4, dtype=np.float32)}


@pytest.fixture
def program_folder(tmp_path: Path) -> Iterator[Path]:
    """Use a temporary folder of stored programs in a test."""
    previous_folder, ProgramCacheConfig.folder = ProgramCacheConfig.folder, tmp_path / "programs"
    yield tmp_path / "programs"
    ProgramCacheConfig.folder = previous_folder


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list to which each trace of a net is appended."""
    parts: list[Any] = []

    def count_trace(inputs: Any, part: Any, select_inputs: Any = interpreter.select_inputs) -> Any:
        parts.append(part)
        return select_inputs(inputs, part)

    monkeypatch.setattr(interpreter, "select_inputs", count_trace)  # called once for each part that is traced
    return parts


def train_params(text: str = NET, data: Any = DATA, options: Any = {}, **settings: Any) -> list[np.ndarray]:  # noqa: B006
    """Return the params after two steps."""
    inputs: dict[str, Any] = {"base_lr": 0.1, "lr_policy": "fixed", "momentum": 0.9, "random_seed": 3, "max_iter": 9}
    param = SolverParameter(**(inputs | settings))
    solver = Solver(SolverParameter.FromString(param.SerializeToString() + _serialize_net(text)), data=data, **options)
    solver.step(2)
    result = [np.asarray(x) for x in jax.tree.leaves(solver.train_state.params)]
    solver.close()
    return result


def _serialize_net(text: str) -> bytes:
    from caffejax.core.schema import read_net

    result: bytes = SolverParameter(net_param=read_net(text)).SerializeToString()
    return result


def assert_same(actual: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_second_solver_traces_nothing(program_folder: Path, traces: list[Any]) -> None:
    ProgramCacheConfig.folder = None
    uncached = train_params()
    ProgramCacheConfig.folder = program_folder
    assert_same(train_params(), uncached)
    assert len(traces) == 2
    (file,) = program_folder.iterdir()
    assert not file.stat().st_mode & 0o077
    assert_same(train_params(), uncached)
    assert len(traces) == 2


def test_a_stored_program_is_loaded_without_the_compiler(
    program_folder: Path, traces: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    train_params()
    n_traces = len(traces)
    monkeypatch.setattr(compilation, "compiler_options", lambda _: pytest.fail("asks XLA which options it accepts"))
    train_params()
    assert len(traces) == n_traces


def test_settings_of_the_loop_do_not_change_the_program(program_folder: Path, traces: list[Any]) -> None:
    train_params()
    train_params(base_lr=0.01, lr_policy="step", gamma=0.5, stepsize=1, max_iter=99, display=1, average_loss=2)
    assert len(traces) == 1


CHANGES: dict[str, Callable[[], Any]] = {
    "text": lambda: train_params(NET.replace("num_output: 5", "num_output: 6")),
    "a type of the same shapes": lambda: train_params(NET.replace("Sigmoid", "TanH")),
    "a multiplier": lambda: train_params(NET.replace('top: "ip"', 'top: "ip" param { lr_mult: 2 }')),
    "a setting": lambda: train_params(weight_decay=0.5),
    "the rule": lambda: train_params(type="Nesterov"),
    "an option": lambda: train_params(options={"kernels": "reference"}),
    "donation": lambda: train_params(options={"debug_nans": True}),
    "the batch": lambda: train_params(
        NET.replace("dim: 4 dim: 6", "dim: 2 dim: 6").replace("dim: 4", "dim: 2"), {k: v[:2] for k, v in DATA.items()}
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_program_is_compiled_again(change: str, program_folder: Path, traces: list[Any]) -> None:
    train_params()
    num_traces_before = len(traces)
    CHANGES[change]()
    assert len(traces) > num_traces_before


def test_a_changed_jax_setting_is_compiled_again(program_folder: Path, traces: list[Any]) -> None:
    train_params()
    with jax.default_matmul_precision("highest"):
        train_params()
    assert len(traces) == 2
    assert len(list(program_folder.iterdir())) == 2


def test_a_changed_environment_is_compiled_again(
    program_folder: Path, traces: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    train_params()
    monkeypatch.setattr(executable_cache, "_describe_environment", lambda: "another version")
    train_params()
    assert len(traces) == 2
    monkeypatch.setattr(executable_cache, "_describe_environment", lambda: None)
    train_params()
    assert len(traces) == 3
    assert len(list(program_folder.iterdir())) == 2


def test_the_environment_depends_on_sources_versions_and_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text("a = 1")
    monkeypatch.setattr(executable_cache, "_PACKAGE", tmp_path)
    monkeypatch.setattr(executable_cache, "_IMPORT_TIME", (tmp_path / "a.py").stat().st_mtime_ns)
    describe_environment = executable_cache._describe_environment.__wrapped__
    descriptions = [describe_environment()]
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    descriptions.append(describe_environment())
    monkeypatch.setattr(executable_cache, "_find_version", lambda package: "another")
    descriptions.append(describe_environment())
    monkeypatch.setattr(executable_cache, "describe_processor", lambda: "another")
    descriptions.append(describe_environment())
    (tmp_path / "a.py").write_text("a = 2")
    monkeypatch.setattr(executable_cache, "_IMPORT_TIME", (tmp_path / "a.py").stat().st_mtime_ns)
    descriptions.append(describe_environment())
    assert None not in descriptions
    assert len(set(descriptions)) == 5
    monkeypatch.setattr(executable_cache, "_IMPORT_TIME", (tmp_path / "a.py").stat().st_mtime_ns - 1)
    assert describe_environment() is None  # what runs is not what stands there


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "truncated": lambda data: data[: len(data) // 2],
    "a bit": lambda data: data[:-100] + bytes([data[-100] ^ 1]) + data[-99:],
    "foreign": lambda data: b"something else",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_are_replaced(damage: str, program_folder: Path, traces: list[Any]) -> None:
    expected = train_params()
    (file,) = program_folder.iterdir()
    intact_bytes = file.read_bytes()
    file.write_bytes(DAMAGES[damage](intact_bytes))
    assert_same(train_params(), expected)
    assert len(traces) == 2
    assert len(file.read_bytes()) > len(intact_bytes) // 2
    assert_same(train_params(), expected)
    assert len(traces) == 2


def test_a_program_under_another_name_is_not_loaded(program_folder: Path, traces: list[Any]) -> None:
    train_params()
    (file,) = program_folder.iterdir()
    data = file.read_bytes()
    expected = train_params(weight_decay=0.5)
    (other_file,) = set(program_folder.iterdir()) - {file}
    other_file.write_bytes(data)
    assert_same(train_params(weight_decay=0.5), expected)
    assert len(traces) == 3


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no such permissions here")
def test_programs_writable_by_others_are_not_loaded(program_folder: Path, traces: list[Any]) -> None:
    expected = train_params()
    (file,) = program_folder.iterdir()
    file.chmod(0o666)
    assert_same(train_params(), expected)
    assert len(traces) == 2
    program_folder.chmod(0o777)
    assert_same(train_params(), expected)
    assert len(traces) == 3


def test_programs_of_user_types_are_not_cached(program_folder: Path, traces: list[Any]) -> None:
    with register_temporarily(declare("Sigmoid")(lambda x: jnp.tanh(x))):
        train_params()
    assert not program_folder.exists()
    train_params()
    assert len(traces) == 2


def test_the_program_of_a_test_net_is_loaded(program_folder: Path, traces: list[Any]) -> None:
    def compute_scores() -> Any:
        param = SolverParameter(base_lr=0.1, lr_policy="fixed", random_seed=3, test_iter=[2], test_interval=5)
        text = SolverParameter.FromString(param.SerializeToString() + _serialize_net(NET))
        solver = Solver(text, data=DATA, test_data=DATA)
        return solver.test()[0].outputs["loss"]

    first_scores = compute_scores()
    num_traces_before = len(traces)
    np.testing.assert_array_equal(compute_scores(), first_scores)
    assert len(traces) == num_traces_before


def test_a_function_takes_arguments_of_any_types(program_folder: Path) -> None:
    traced_shapes = []

    def double(x: jax.Array) -> jax.Array:
        traced_shapes.append(x.shape)
        return 2 * x

    for _ in range(2):
        run = compilation.Jitted(double, "fast", cache_key=b"double")
        for x in (np.ones(3, np.float32), jnp.arange(4), np.ones(3, np.float32), 1.5):
            np.testing.assert_array_equal(run(x), 2 * np.asarray(x))
        assert jax.jit(run)(jnp.ones(2)).shape == (2,)
        np.testing.assert_array_equal(jax.vmap(run)(jnp.ones((2, 3))), np.full((2, 3), 2))
    assert traced_shapes.count((4,)) == 1


def test_old_programs_are_removed(program_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    previous_size = jax.config.values["jax_compilation_cache_max_size"]
    compilation.Jitted(lambda x: x + 1, "fast", cache_key=b"one")(np.ones(3))
    (first_file,) = program_folder.iterdir()
    os.utime(first_file, (1, 1))
    jax.config.update("jax_compilation_cache_max_size", first_file.stat().st_size * 3 // 2)
    try:
        compilation.Jitted(lambda x: x + 2, "fast", cache_key=b"two")(np.ones(3))
    finally:
        jax.config.update("jax_compilation_cache_max_size", previous_size)
    (remaining_file,) = program_folder.iterdir()
    assert remaining_file != first_file
