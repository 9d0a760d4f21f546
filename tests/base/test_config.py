"""The two configuration values: their checks, and keywords that replace their fields."""

import dataclasses
import pickle
import re
from os import PathLike
from typing import Any, get_type_hints

import jax
import numpy as np
import optax
import pytest

from caffejax import CaffejaxError, Net, Solver, SolverError
from caffejax.base.config import (
    NetConfig,
    Options,
    SolverOptions,
    TrainConfig,
    get_choices,
    resolve_options,
)
from caffejax.core.schema.caffe_pb2 import NetParameter

INPUT = 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 } } }'


def collect_messages(function: Any) -> list[str]:
    """Return the messages of the error that a call raises, one for each problem."""
    with pytest.raises(CaffejaxError) as exc_info:
        function()
    return [problem.message for problem in exc_info.value.problems]


def test_all_invalid_values_of_how_a_net_computes_are_reported() -> None:
    values: dict[str, Any] = dict.fromkeys(("kernels", "precision", "backward", "remat"), "best") | {"memory_limit": -1}
    values |= {"axis_name": "", "sync_bn": "yes"}
    assert sorted(collect_messages(lambda: NetConfig(**values))) == sorted(
        [
            'kernels must be "fast" or "reference", not "best"',
            'precision must be "float32" or "tf32" or "bfloat16", not "best" (half precision is bfloat16, which needs '
            "no loss scaling)",
            'backward must be "autodiff" or "rules", not "best"',
            'remat must be "none" or "auto", not "best"',
            "memory_limit must be a number of bytes, not -1",
            'axis_name must be the name of a mesh axis, or None, not ""',
            'sync_bn must be True or False, not "yes"',
        ]
    )


def test_all_invalid_values_of_how_data_is_read_are_reported() -> None:
    values: dict[str, Any] = {"seed": 0.5, "workers": -1, "skip_bad": "no", "shard": 2}
    assert sorted(collect_messages(lambda: NetConfig(**values))) == sorted(
        [
            "seed must be an integer, not 0.5",
            "workers must be an integer of at least 0, not -1",
            'skip_bad must be True or False, not "no"',
            "shard must be a DataShard, not 2",
        ]
    )


@pytest.mark.parametrize(
    ("option", "value"),
    [("memory_limit", 1.5), ("memory_limit", True), ("seed", True), ("workers", "2"), ("skip_bad", 1), ("remat", None)],
)
def test_values_of_wrong_types_are_reported(option: str, value: Any) -> None:
    (message,) = collect_messages(lambda: resolve_options(NetConfig(), {option: value}))
    assert message.startswith(f"{option} must be ")


def test_invalid_and_unknown_options_are_reported_together() -> None:
    options = {"kernel": "fast", "kernels": "slow", "remat": "all", "workers": -2, "depth": 3, "skip_bad": None}
    expected = [
        "there is no option 'kernel'; did you mean 'kernels'?",
        "there is no option 'depth'; the options are axis_name, backward, joins_batches, kernels, max_hdf5_bytes, "
        "max_image_pixels, memory_limit, no_python_layers, precision, remat, seed, skip_bad, sync_bn, workers",
        'kernels must be "fast" or "reference", not "slow"',
        'remat must be "none" or "auto", not "all"',
        "workers must be an integer of at least 0, not -2",
        "skip_bad must be True or False, not None",
    ]
    assert sorted(collect_messages(lambda: resolve_options(NetConfig(), options))) == sorted(expected)
    assert sorted(collect_messages(lambda: Net(INPUT, **options))) == sorted(expected)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("kernel", "kernels"), ("sede", "seed"), ("Workers", "workers"), ("skip-bad", "skip_bad"), ("dtype", "precision")],
)
def test_errors_about_unknown_options_suggest_a_similar_name(name: str, nearest: str) -> None:
    (message,) = collect_messages(lambda: resolve_options(NetConfig(), {name: 1}))
    assert message == f"there is no option '{name}'; did you mean '{nearest}'?"


def test_keywords_override_fields() -> None:
    config = NetConfig(kernels="reference", memory_limit=10, seed=7, workers=2)
    assert resolve_options(config, {}) == config
    options = {"backward": "rules", "kernels": "fast", "memory_limit": None, "seed": 1}
    assert resolve_options(config, options) == NetConfig("fast", backward="rules", seed=1, workers=2)
    assert config == NetConfig("reference", memory_limit=10, seed=7, workers=2)  # as it was


def test_a_net_takes_a_config_and_options() -> None:
    net = Net(INPUT, config=NetConfig(backward="rules", workers=1), kernels="reference", seed=3)
    assert net.config == NetConfig(kernels="reference", backward="rules", workers=1, seed=3)


@pytest.mark.parametrize(
    ("value", "equal_config", "different_config"),
    [
        (NetConfig(), NetConfig("fast"), NetConfig("reference")),
        (NetConfig(), NetConfig(seed=0), NetConfig(seed=1)),
    ],
)
def test_configs_are_frozen_and_hashable(value: Any, equal_config: Any, different_config: Any) -> None:
    assert {value: 1, equal_config: 2, different_config: 3} == {value: 2, different_config: 3}
    assert pickle.loads(pickle.dumps(different_config)) == different_config != value
    for field in dataclasses.fields(value):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, field.name, getattr(different_config, field.name))


def test_options_are_the_fields_of_configs_except_those_that_solvers_set() -> None:
    hints = get_type_hints(NetConfig)
    del hints["shard"], hints["num_parts"]  # set by the solver
    assert get_type_hints(Options) == hints
    options, train_hints = (
        get_type_hints(kind, localns={"jax": jax, "optax": optax}) for kind in (SolverOptions, TrainConfig)
    )
    train_hints["weights"] |= str | PathLike[str]  # which becomes a sequence of one path
    assert options == hints | train_hints
    assert not Options.__required_keys__


def test_options_with_choices_refuse_other_values() -> None:
    assert get_choices(NetConfig, "kernels") == ("fast", "reference")
    assert get_choices(NetConfig, "precision") == ("float32", "tf32", "bfloat16")
    for name in ("kernels", "precision", "backward", "remat"):
        assert get_choices(NetConfig, name)[0] == getattr(NetConfig(), name)
        for value in get_choices(NetConfig, name):
            assert getattr(NetConfig(**{name: value}), name) == value  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"config": None}, "config must be a caffejax.NetConfig, not None"),
        (
            {"config": {"kernels": "fast"}},
            "config must be a caffejax.NetConfig, not {'kernels': 'fast'}",
        ),
        ({"config": None, "seed": "x"}, "config must be a caffejax.NetConfig"),
        ({"precision": np.array([1, 2])}, "precision must be"),
    ],
)
def test_configs_of_wrong_types_are_rejected(options: Any, message: str) -> None:
    with pytest.raises(CaffejaxError, match=re.escape(message)):
        Net(INPUT, **options)


def test_a_solver_names_its_own_and_the_nets_options_together() -> None:
    with pytest.raises(SolverError) as exc_info:
        Solver("x", keep_best=3, debug_nans="q", kernels="quick", foo=1)  # type: ignore[arg-type, call-arg]
    for words in ("keep_best must be", "debug_nans must be", "there is no option 'foo'", "kernels must be"):
        assert words in str(exc_info.value)


def test_a_net_without_layers_allows_rematerialization() -> None:
    net = Net(NetParameter(name="empty"), "TRAIN", remat="auto")
    assert net.loss({}, {}, {}, required=False)[0] == 0
