"""Layer types of other packages: valid declarations work, and invalid declarations are refused."""

from __future__ import annotations

import gc
import importlib
import json
import sys
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax import (
    CaffejaxError,
    Context,
    Indices,
    LayerDefinition,
    LayerError,
    LayerType,
    Net,
    ParamSpec,
    declare,
    layer,
    register,
)
from caffejax.core.layers import Traced, layer_types, register_temporarily, registry

INPUT_LAYER = 'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 4 dim: 3 } } }'
CUSTOM_LAYER = 'layer { name: "own" type: "Own" bottom: "x" top: "y" }'
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)


def scale_by_param(params: Any, x: jax.Array) -> jax.Array:
    return jnp.tanh(params["0"] * x)


def scale_params(x: Any) -> list[ParamSpec]:
    return [ParamSpec((1,), value=np.full(1, 2.0))]


def count_passes(x: jax.Array, *, state: Any) -> Any:
    return x + 0 * state["0"], {"0": state["0"] + x.shape[0]}


def count_params(x: Any) -> list[ParamSpec]:
    return [ParamSpec((1,), learnable=False)]


@pytest.mark.parametrize("kernels", ["fast", "reference"])
def test_elementwise_layers_may_have_params_and_state(kernels: Any) -> None:
    for own in (
        declare("Own", params=scale_params, elementwise=True)(scale_by_param),
        declare("Own", params=count_params, stateful=True, elementwise=True)(count_passes),
    ):
        with register_temporarily(own):
            net = Net(INPUT_LAYER + CUSTOM_LAYER, kernels=kernels)
            params, state = net.init(jax.random.key(0))
            blobs, new_state = net.forward(params, state, {"x": X})
            if params:
                np.testing.assert_allclose(blobs["y"], np.tanh(2 * X), rtol=1e-6)
                assert jax.grad(lambda p, net=net: net.apply(p, {}, {"x": X})[0]["y"].sum())(params)["own"]["0"] != 0
            else:
                assert new_state["own"]["0"] == 4


def test_elementwise_layers_may_run_on_the_host() -> None:
    with register_temporarily(
        declare("Own", on_host=True, top_shapes=lambda x: [x.shape], elementwise=True)(lambda x: np.sin(x))
    ):
        np.testing.assert_allclose(
            Net(INPUT_LAYER + CUSTOM_LAYER).forward({}, {}, {"x": X})[0]["y"], np.sin(X), rtol=1e-6
        )


@pytest.mark.parametrize("backward", ["autodiff", "rules"])
@pytest.mark.parametrize(
    ("function", "fields"),
    [(jnp.tanh, {}), (np.tanh, {"on_host": True, "top_shapes": lambda x: [x.shape]})],
    ids=["traced", "host"],
)
def test_a_type_that_stops_the_gradient_needs_no_backward(function: Any, fields: dict[str, Any], backward: Any) -> None:
    with register_temporarily(declare("Own", stops_gradient=True, **fields)(lambda x: function(x))):
        own = layer("Own", backward=backward)
        np.testing.assert_allclose(own(X), np.tanh(X), rtol=1e-6)
        assert not jax.grad(lambda x: own(x).sum())(X).any()


def test_types_made_for_one_layer_are_released_with_their_net() -> None:
    forward_refs: list[weakref.ref[Any]] = []

    @declare("Own", per_layer=True)
    def make(definition: LayerDefinition, *, ctx: Context) -> LayerType:
        def forward(x: jax.Array) -> jax.Array:
            return 2 * x

        forward_refs.append(weakref.ref(forward))
        return replace(ctx.type, implementation=Traced(forward))

    with register_temporarily(make):
        net = Net(INPUT_LAYER + CUSTOM_LAYER)
        np.testing.assert_array_equal(net.apply({}, {}, {"x": X})[0]["y"], 2 * X)
        np.testing.assert_array_equal(net.forward({}, {}, {"x": X})[0]["y"], 2 * X)
        del net
        gc.collect()
        assert forward_refs
        assert [ref() for ref in forward_refs] == [None] * len(forward_refs)


def test_state_does_not_count_padding_rows() -> None:
    text = (
        INPUT_LAYER
        + 'layer { name: "w" type: "Input" top: "w" input_param { shape { dim: 4 } } }'
        + 'layer { name: "filter" type: "Filter" bottom: "x" bottom: "w" top: "z" }'
        + 'layer { name: "own" type: "Own" bottom: "z" top: "y" }'
    )
    with register_temporarily(declare("Own", params=count_params, stateful=True, row_wise=True)(count_passes)):
        net = Net(text)
        params, state = net.init(jax.random.key(0))
        _, state = net.apply(params, state, {"x": X, "w": np.array([1, 0, 1, 1], np.float32)})
        assert state["own"]["0"] == 3


def make_invalid_types() -> dict[str, tuple[LayerType, str]]:
    def make_traced_type(forward: Any = lambda *arrays: arrays[-1], **options: Any) -> LayerType:
        return declare("Own", **options)(forward).type

    def make_per_layer_type(result: Any) -> LayerType:
        return declare("Own", per_layer=True)(lambda definition: result).type

    def make_type_with_params(*specs: Any) -> LayerType:
        return make_traced_type(params=lambda x: list(specs))

    state = ParamSpec((1,), learnable=False, persistent=False)
    return {
        "no top": (
            make_traced_type(lambda x: None),
            "forward must return an array, or a tuple with an array for each top, not None",
        ),
        "no type": (make_per_layer_type(None), "PerLayer.make must return a LayerType, not None"),
        "half a type": (
            make_per_layer_type(Traced(scale_by_param)),
            "PerLayer.make must return a LayerType, not Traced",
        ),
        "no list": (
            make_traced_type(params=lambda x: ParamSpec((1,))),
            "params must return a list of ParamSpecs, not a value of type ParamSpec",
        ),
        "no spec": (make_type_with_params((1,)), r"params must list ParamSpecs, not \(1,\)"),
        "order": (
            make_type_with_params(state, ParamSpec((1,))),
            "params that are not persistent must be declared last",
        ),
        "params that are not taken": (
            make_type_with_params(ParamSpec((1,), name="scale"), ParamSpec((1,)), state),
            "has 'scale', '1' as params, but its function does not take `params`: add it",
        ),
    }


@pytest.mark.parametrize("name", make_invalid_types())
def test_errors_of_a_type_name_the_layer(name: str) -> None:
    layer_type, message = make_invalid_types()[name]
    with register_temporarily(layer_type), pytest.raises(Exception, match=rf"layer 'own' \(Own\): .*{message}"):
        Net(INPUT_LAYER + CUSTOM_LAYER)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"shape": [3]}, r"a ParamSpec's shape must be a tuple of non-negative integers, not \[3\]"),
        ({"shape": (3,), "persistent": False}, "a ParamSpec that is not persistent cannot be learnable"),
        (
            {"shape": (3,), "value": np.ones(2)},
            r"value of a ParamSpec must have the shape of the spec, \(3,\), not \(2,\)",
        ),
    ],
)
def test_invalid_param_specs_raise(spec: Any, message: str) -> None:
    with pytest.raises(LayerError, match=message):
        ParamSpec(**spec)


def test_invalid_declarations_raise() -> None:
    with (
        pytest.raises(ValueError, match="LayerParameter has no field 'own_param'"),
        register_temporarily(declare("Own", param="own_param")(scale_by_param)),
    ):
        pass
    with pytest.raises(ValueError, match=r"'Own': dtype_policy must be one of .*'products'.*, not 'product'"):
        declare("Own", dtype_policy="product")(scale_by_param)
    with pytest.raises(TypeError, match="'Own': there is no field 'rowwise'; did you mean 'row_wise'"):
        register("Own", rowwise=True)(scale_by_param)
    with pytest.raises(TypeError, match="a type is declared by its name"):
        register(scale_by_param)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="'Own': params must be a function, not a value of type list"):
        declare("Own", params=[])(scale_by_param)
    for own in (declare("Own"), declare("Own")(scale_by_param).backward):
        with pytest.raises(TypeError, match=r"'Own': .* must name ctx after `\*`, as a keyword"):
            own(lambda ctx, x: x)
    with pytest.raises(TypeError, match="'Own': backward must name y after `\\*`"):
        declare("Own")(scale_by_param).backward(lambda params, x, *, dy: ({}, dy))
    with pytest.raises(TypeError, match=r"'Own': write @name\.backward without parentheses"):
        declare("Own")(scale_by_param).backward()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="'Own': the function must be a function, not a class"):
        declare("Own")(PowerSettings)
    with pytest.raises(AttributeError, match="no field 'backwards'; did you mean 'backward'"):
        declare("Own")(scale_by_param).backwards(scale_by_param)
    with pytest.raises(ValueError, match="`gathers` need `num_classes`"):
        Indices((0,), gathers=True)


def test_notebook_cell_replaces_only_types_of_the_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"_types": layer_types(), "_aliases": {}, "_modules": {**registry._modules}}.items():
        monkeypatch.setattr(registry, name, value)
    cell = "from caffejax import register\nregister(name, aliases=aliases)(forward)"
    names: dict[str, Any] = {"__name__": "__main__"}
    for factor in (2, 3):
        exec(cell, names | {"name": "Own", "aliases": ("Ours",), "forward": lambda x, by=factor: by * x})
    net = Net(INPUT_LAYER + CUSTOM_LAYER.replace('"Own"', '"Ours"'))
    np.testing.assert_array_equal(net.apply({}, {}, {"x": X})[0]["y"], 3 * X)
    with pytest.raises(ValueError, match=r"'ReLU' is already registered, by caffejax\.core\.layers\.neuron;"):
        exec(cell, names | {"name": "ReLU", "aliases": (), "forward": scale_by_param})


@pytest.mark.parametrize(
    ("gradients", "message"),
    [
        (lambda dy: ((), dy), "a gradient for each param: 1 in all, not 0"),
        (lambda dy: ({"O": dy.sum()[None]}, dy), "a gradient of 'O', which is no param; the params are 0"),
        (lambda dy: (dy, {"0": dy.sum()[None]}), "the gradient of bottom 0 is a dict; return that of the params first"),
    ],
)
def test_wrong_gradients_of_a_backward_rule_raise(gradients: Any, message: str) -> None:
    own = declare("Own", params=scale_params, backward=lambda params, x, *, y, dy: gradients(dy))(scale_by_param)
    with register_temporarily(own):
        net = Net(INPUT_LAYER + CUSTOM_LAYER, backward="rules")
        params, _ = net.init(jax.random.key(0))
        with pytest.raises(LayerError, match=message):
            jax.grad(lambda p: net.apply(p, {}, {"x": X})[0]["y"].sum())(params)


def test_functions_may_be_declared_after_use() -> None:
    own = declare("Own", params=scale_params)(scale_by_param)
    assert own({"0": 1.0}, X).shape == X.shape
    assert own.type.gradient.backward is None

    @own.backward
    def rule(params: Any, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> Any:
        slope = dy * (1 - y * y)
        return {"0": jnp.sum(slope * x)[None]}, slope * params["0"]

    with register_temporarily(own):
        gradients = {}
        for backward in ("rules", "autodiff"):
            net = Net(INPUT_LAYER + CUSTOM_LAYER, backward=backward)
            params, _ = net.init(jax.random.key(0))
            gradients[backward] = jax.grad(lambda p, net=net: net.apply(p, {}, {"x": X})[0]["y"][0].sum())(params)
    np.testing.assert_allclose(gradients["rules"]["own"]["0"], gradients["autodiff"]["own"]["0"], rtol=1e-5)


def test_fillers_may_be_functions_of_a_key_and_a_shape() -> None:
    def params(x: jax.Array) -> list[ParamSpec]:
        orthogonal = ParamSpec((3, 3), filler=jax.nn.initializers.orthogonal(), name="weight")
        return [orthogonal, ParamSpec((3,), filler=lambda key, shape: jnp.full(shape, 2.0), name="bias")]

    own = declare("Own", params=params)(lambda params, x: x @ params["weight"] + params["bias"])
    with register_temporarily(own):
        net = Net(INPUT_LAYER + CUSTOM_LAYER)
        weight, bias = (net.init(jax.random.key(1)).params["own"][name] for name in ("weight", "bias"))
        assert not np.array_equal(weight, net.init(jax.random.key(2)).params["own"]["weight"])
    np.testing.assert_allclose(weight @ weight.T, np.eye(3), atol=1e-6)
    np.testing.assert_array_equal(bias, 2)


def test_fillers_that_are_wrong_are_refused() -> None:
    for filler in ("xavier", 0.1):
        with pytest.raises(LayerError, match=f"must be a FillerParameter, such as .*, not {filler!r}"):
            ParamSpec((3,), filler=filler)
    specs = [ParamSpec((3,), filler=lambda key, shape: jnp.ones(2))]
    with register_temporarily(declare("Own", params=lambda x: specs)(lambda params, x: x)):
        net = Net(INPUT_LAYER + CUSTOM_LAYER)
        with pytest.raises(
            LayerError, match=r"layer 'own' \(Own\): its filler returned values of shape \(2,\), not \(3,\)"
        ):
            net.init(jax.random.key(0))


@dataclass(frozen=True)
class PowerSettings:
    factor: float = 1.0
    sizes: Sequence[int] = ()


def test_settings_may_be_a_dataclass_read_from_param_str() -> None:
    def check(text: str) -> Any:
        layer = CUSTOM_LAYER.rstrip().rstrip("}") + f" python_param {{ param_str: {json.dumps(text)} }} }}"
        net = Net(INPUT_LAYER + layer)
        np.testing.assert_array_equal(
            net.apply({}, {}, {"x": X})[0]["y"], X * net.graph.layer("own").context.settings.factor
        )
        return net.graph.layer("own").context.settings

    own = declare("Own", param="python_param", settings=PowerSettings)(lambda p, x: x * p.factor)
    with register_temporarily(own):
        assert check("") == PowerSettings()
        assert check("factor: 2.5") == PowerSettings(2.5)
        assert check("{'factor': 3.0, 'sizes': (1, 2)}") == PowerSettings(3.0, (1, 2))
        with pytest.raises(
            CaffejaxError, match=r"layer 'own' \(Own\): param_str has no setting 'facto'; did you mean 'factor'"
        ):
            check("facto: 1.0")
        with pytest.raises(CaffejaxError, match=r"factor in param_str must have the type of its default 1.0"):
            check("factor: 'a'")
        with pytest.raises(CaffejaxError, match=r"write the settings of 'Own' as param_str: 'factor: 2'"):
            layer("Own", "factor: 2")
        assert layer("Own", 'param_str: "factor: 2"')(X[0]).tolist() == (X[0] * 2).tolist()


def test_an_integer_may_be_the_default_of_a_float() -> None:
    @dataclass
    class Settings:
        factor: float = 1

    with register_temporarily(declare("Own", param="python_param", settings=Settings)(lambda p, x: x * p.factor)):
        assert layer("Own", 'param_str: "factor: 0.5"')(X[0]).tolist() == (X[0] * 0.5).tolist()


def double_power(p: Any) -> None:
    p.power *= 2


def keep_power(p: Any, x: jax.Array) -> jax.Array:
    return x * p.power


def double_power_forward(p: Any, x: jax.Array) -> jax.Array:
    double_power(p)
    return x * p.power


def double_power_backward(p: Any, x: jax.Array, *, y: Any, dy: jax.Array) -> jax.Array:
    double_power(p)
    return dy * p.power


def double_power_shapes(p: Any, x: Any) -> list[tuple[int, ...]]:
    double_power(p)
    return [x.shape]


@pytest.mark.parametrize("what", ["forward", "backward", "check", "top_shapes", "settings"])
def test_a_function_that_changes_the_settings_of_its_layer_is_refused(what: str) -> None:
    functions: dict[str, Any] = {
        "check": {"check": double_power},
        "top_shapes": {"top_shapes": double_power_shapes},
        "settings": {"settings": double_power},
    }
    own = declare("Own", param="power_param", **functions.get(what, {}))(
        double_power_forward if what == "forward" else keep_power
    )
    if what == "backward":
        own.backward(double_power_backward)

    def run() -> None:
        net = Net(
            """
            layer { name: "data" type: "Input" top: "x" input_param { shape { dim: 4 dim: 3 } } }
            layer { name: "own" type: "Own" bottom: "x" top: "y" power_param { power: 3 } }
            """,
            backward="rules",
        )
        jax.grad(lambda x: net.apply({}, {}, {"x": x})[0]["y"].sum())(X)

    with register_temporarily(own):
        for _ in range(2):  # nor is the changed value kept
            with pytest.raises(CaffejaxError, match=r"double_power\w* changed its settings p"):
                run()


def test_settings_that_cannot_be_read_are_refused() -> None:
    @dataclass
    class WithoutDefault:
        factor: float

    with pytest.raises(ValueError, match='declare the type with param="python_param"'):
        register("Slip", settings=PowerSettings)(lambda p, x: x)
    for settings in (WithoutDefault, int):
        with pytest.raises(TypeError, match="must be a function, or a dataclass whose fields have defaults"):
            register("Slip", param="python_param", settings=settings)(lambda p, x: x)


def test_a_module_that_is_reloaded_replaces_its_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"_types": layer_types(), "_aliases": {}, "_modules": {**registry._modules}}.items():
        monkeypatch.setattr(registry, name, value)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    text = """
from caffejax import register
register("Own", aliases=("Ours",))(lambda x: {factor} * x)
"""
    file = tmp_path / "reloaded_layers.py"
    file.write_text(text.format(factor=2))
    module = importlib.import_module("reloaded_layers")
    for factor in (2, 3):
        file.write_text(text.format(factor=factor))
        importlib.reload(module)
        net = Net(INPUT_LAYER + CUSTOM_LAYER.replace('"Own"', '"Ours"'))
        np.testing.assert_array_equal(net.apply({}, {}, {"x": X})[0]["y"], factor * X)
    file.write_text(2 * text.format(factor=4))
    with pytest.raises(ValueError, match="'Own' is already registered"):  # twice in one module is a mistake
        importlib.reload(module)
    (tmp_path / "others_layers.py").write_text(text.format(factor=5))
    with pytest.raises(ValueError, match="'Own' is already registered, by reloaded_layers; use a different name"):
        importlib.import_module("others_layers")
