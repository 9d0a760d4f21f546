"""Bottoms of shapes that a layer was not built for give an error that names the layer, or the correct result."""

import itertools
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax import declare
from caffejax.base.errors import CaffejaxError, LayerError
from caffejax.core.layers import layer_type, layer_types, register_temporarily
from caffejax.core.program.interpreter import PassInputs, compute_part
from caffejax.core.program.net import Net
from caffejax.core.program.schedule import make_part
from golden_cases import ACCEPTED_CASES, find_first_cases, make_case_params
from layer_nets import Replay, net_text

FIRST_CASES = find_first_cases(
    [c for c in ACCEPTED_CASES if c["type"] != "Python" and layer_type(c["type"]).signature.bottoms != 0]
)
DATA_MOVING_TYPES = {"Concat", "Crop", "Filter", "Flatten", "Im2col", "Reshape", "Silence", "Slice", "Split", "Tile"}

Shape = tuple[int, ...]


def test_every_type_with_bottoms_has_a_recorded_case() -> None:
    bvlc_types = {n for n, t in layer_types().items() if t.signature.bottoms != 0 and t.docs.origin == "BVLC"}
    # some types of forks are not recorded; HDF5Output accepts any rows; Python runs the user's code
    assert bvlc_types - {name.partition(" ")[0] for name in FIRST_CASES} == {"HDF5Output", "Python"}


class SingleLayer:
    """A recorded layer, run on bottoms of any shape and dtype."""

    def __init__(self, name: str, kernels: Any) -> None:
        self._replay = Replay(FIRST_CASES[name], kernels=kernels)
        self.layer = self._replay.layer
        self.built_shapes = {name: blob.shape for name, blob in self._replay.net.graph.blobs.items()}
        self.bottoms = {name: self.built_shapes[name] for name in self.layer.bottoms}

    def tops(self, shapes: dict[str, Shape], dtypes: dict[str, Any]) -> list[Shape] | str:
        """Return the shapes of the tops, or the message of the error."""
        bottoms = {b: jax.ShapeDtypeStruct(s, dtypes.get(b, jnp.float32)) for b, s in shapes.items()}
        try:
            if self.layer.type.on_host:
                blobs = self._run({b: np.ones(s.shape, s.dtype) for b, s in bottoms.items()})
            else:
                blobs = jax.eval_shape(self._run, bottoms)
        except CaffejaxError as error:
            return str(error)
        return [blobs[top].shape for top in self.layer.tops]

    def _run(self, bottoms: Any) -> Any:
        inputs = PassInputs(self._replay.params, self._replay.state, {}, jax.random.key(0), {})
        bottom_values = {name: jnp.asarray(x) for name, x in bottoms.items()}
        return compute_part(make_part((self.layer,)), inputs, bottom_values).values


def iterate_other_shapes(shape: Shape) -> Iterator[Shape]:
    """Yield shapes with one axis fewer or more, and with one axis longer or of size 1."""
    yield from (shape[:-1], (*shape, 2), (2, *shape))
    for i, n in enumerate(shape):
        yield from ((*shape[:i], size, *shape[i + 1 :]) for size in {n + 1, 1} - {n})


@pytest.mark.parametrize("name", make_case_params(FIRST_CASES))
def test_other_shapes_give_equal_results_or_errors_with_both_kernels(name: str) -> None:
    fast, reference = SingleLayer(name, "fast"), SingleLayer(name, "reference")
    results, expected_shapes = fast.tops(fast.bottoms, {}), [fast.built_shapes[t] for t in fast.layer.tops]
    if (
        getattr(fast.layer.type.implementation, "ragged_axis", None) is not None
    ):  # built for as many rows as there can be
        assert [shape[1:] for shape in results] == [shape[1:] for shape in expected_shapes]
        assert all(shape[0] <= max_shape[0] for shape, max_shape in zip(results, expected_shapes, strict=True))
    else:
        assert results == expected_shapes
    for blob, shape in fast.bottoms.items():
        for other_shape in iterate_other_shapes(shape):
            actual, expected = (
                single_layer.tops({**single_layer.bottoms, blob: other_shape}, {}) for single_layer in (fast, reference)
            )
            if isinstance(actual, str):
                assert actual.startswith(f"{fast.layer.definition.file}: layer 'layer' ({fast.layer.type.name}): ")
                assert isinstance(expected, str), (other_shape, actual, expected)
            else:
                assert actual == expected, other_shape


@pytest.mark.parametrize("name", make_case_params(FIRST_CASES))
def test_integer_bottoms_are_accepted_or_named_in_the_error(name: str) -> None:
    single_layer = SingleLayer(name, "fast")
    type_ = single_layer.layer.type
    for (i, blob), dtype in itertools.product(enumerate(single_layer.bottoms), (jnp.uint8, jnp.int32, jnp.bool_)):
        message = single_layer.tops(single_layer.bottoms, {blob: dtype})
        if i in single_layer.layer.index_bottoms or name in DATA_MOVING_TYPES or type_.traits.accepts_integers:
            assert message == single_layer.tops(single_layer.bottoms, {}), blob
        else:
            layer = f"{single_layer.layer.definition.file}: layer 'layer' ({type_.name})"
            assert str(message).startswith(
                f"{layer}: bottom {i} ('{blob}') has dtype {jnp.dtype(dtype)}, but the layer "
            )
            assert str(message).endswith("pass float32, for example with .astype(jnp.float32)")


CONVOLUTION_NET = """
    layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } } }
    layer { name: "conv" type: "Convolution" bottom: "data" top: "y"
      convolution_param { num_output: 4 kernel_size: 3 } }
    layer { name: "norm" type: "BatchNorm" bottom: "y" top: "y" }
    layer { name: "scale" type: "Scale" bottom: "y" top: "y" scale_param { num_axes: %d bias_term: true } }
    layer { name: "relu" type: "ReLU" bottom: "y" top: "y" }
"""


@pytest.mark.parametrize("phase", ["TRAIN", "TEST"])
@pytest.mark.parametrize(
    ("axes", "shape", "message"),
    [
        (1, (2, 4, 8, 8), r"layer 'conv' .*blob 0 has shape \(4, 3, 3, 3\), .* needs shape \(4, 4, 3, 3\)"),
        (1, (3, 8, 8), r"layer 'conv' .*blob 0 has shape \(4, 3, 3, 3\), .* needs shape \(4, 8, 3\)"),
        (-1, (2, 3, 9, 9), r"layer 'scale' .*blob 0 has shape \(4, 6, 6\), .* needs shape \(4, 7, 7\)"),
    ],
)
def test_error_names_the_layer_of_a_fused_group(phase: Any, axes: int, shape: Shape, message: str) -> None:
    net = Net(CONVOLUTION_NET % axes, phase)
    with pytest.raises(LayerError, match=message):
        net.forward(*net.init(jax.random.key(0)), {"data": np.zeros(shape, np.float32)})


def test_images_of_a_different_size() -> None:
    net = Net(CONVOLUTION_NET % 1)
    tops, _ = net.forward(*net.init(jax.random.key(0)), {"data": np.zeros((1, 3, 20, 9), np.float32)})
    assert tops["y"].shape == (1, 4, 18, 7)


def test_symbolic_batch_size() -> None:
    (batch,) = jax.export.symbolic_shape("b")
    net = Net(CONVOLUTION_NET % 1, kernels="reference")
    params, state = net.init(jax.random.key(0))
    data = jax.ShapeDtypeStruct((batch, 3, 8, 8), jnp.float32)
    exported = jax.export.export(jax.jit(lambda x: net.apply(params, state, {"data": x})[0]["y"]))(data)
    assert exported.call(np.zeros((5, 3, 8, 8), np.float32)).shape == (5, 4, 6, 6)


def test_float16_bottoms_are_refused() -> None:
    net = Net(net_text("Convolution", "convolution_param { num_output: 4 kernel_size: 3 }", [(2, 3, 8, 8)]))
    message = r"layer 'layer' \(Convolution\): cannot take a bottom of shape \(2, 3, 8, 8\) float16: "
    with pytest.raises(LayerError, match=message):
        net.apply(*net.init(jax.random.key(0)), {"b0": np.zeros((2, 3, 8, 8), np.float16)})


class RefusalError(Exception):
    """An exception class of the user."""


@pytest.mark.parametrize("error", [RefusalError, ValueError, LayerError])
def test_types_of_other_packages_are_validated(error: type[Exception]) -> None:
    def require_two_rows(x: jax.Array) -> jax.Array:
        if x.shape[0] != 2:
            raise error("takes two rows")
        return x.astype(jnp.float32)

    with register_temporarily(declare("TestPicky", accepts_integers=True)(require_two_rows)):
        net = Net(net_text("TestPicky", "", [(2, 3)]))
        assert net.forward({}, {}, {"b0": np.ones((2, 3), np.uint8)})[0]["t0"].dtype == jnp.float32
        with pytest.raises(error, match="takes two rows") as exc_info:
            net.forward({}, {}, {"b0": np.ones((4, 3), np.float32)})
        assert "layer 'layer' (TestPicky)" in str(exc_info.value) + "".join(exc_info.value.__notes__)


def test_errors_in_user_code_name_the_location() -> None:
    def broken(x: jax.Array) -> jax.Array:
        return {}["k"]  # type: ignore[no-any-return]

    def branching(x: jax.Array) -> jax.Array:
        return x if x[0, 0] > 0 else -x

    def helping(x: jax.Array) -> jax.Array:
        return (lambda x, y: x + y)(x)  # type: ignore[call-arg]

    def indexing(x: jax.Array) -> jax.Array:
        return x * (1.0, 2.0)[7]  # type: ignore[misc]

    branching_error = jax.errors.TracerBoolConversionError
    cases: tuple[tuple[Any, type[Exception]], ...] = (
        *((broken, KeyError), (branching, branching_error), (helping, TypeError), (indexing, IndexError)),
    )
    for forward, error_class in cases:
        with (
            register_temporarily(declare("TestBroken")(forward)),
            pytest.raises(error_class) as exc_info,
        ):
            Net(net_text("TestBroken", "", [(2, 3)]))
        frames = [(frame.filename, frame.name) for frame in traceback.extract_tb(exc_info.value.__traceback__)]
        assert (__file__, forward.__name__) in frames
        assert exc_info.value.__notes__[-1] == "in layer 'layer' (TestBroken)"
        assert not any("functions take" in note for note in exc_info.value.__notes__)
        assert error_class is not branching_error or "https://docs.jax.dev" in str(exc_info.value)


def test_functions_that_cannot_be_called_are_explained() -> None:
    with (
        register_temporarily(declare("TestBroken")(lambda a, x: x)),
        pytest.raises(TypeError, match="missing 1 required positional argument: 'x'") as exc_info,
    ):
        Net(net_text("TestBroken", "", [(2, 3)]))
    notes = "".join(exc_info.value.__notes__)
    assert "functions take `p`, `params`, the bottoms and keywords" in notes
    assert "layer 'layer' (TestBroken)" in notes


def test_integer_labels_and_targets_do_not_change_gradients() -> None:
    for type_name, shapes in ("SoftmaxWithLoss", [(4, 3), (4,)]), ("EuclideanLoss", [(4, 3), (4, 3)]):
        for backward in ("autodiff", "rules"):
            net = Net(net_text(type_name, "", shapes), "TRAIN", backward=backward)
            x, y = np.ones(shapes[0], np.float32), np.arange(np.prod(shapes[1])).reshape(shapes[1]) % 3

            def loss(x: Any, y: Any, net: Net = net) -> jax.Array:
                return net.loss({}, {}, {"b0": x, "b1": y})[0]

            integer_label_grad = jax.grad(loss)(x, y.astype(np.int32))
            np.testing.assert_array_equal(
                integer_label_grad, jax.grad(loss)(x, y.astype(np.float32)), err_msg=f"{type_name} {backward}"
            )


def test_integer_blobs_can_be_written_to_a_file(tmp_path: Path) -> None:
    text = f'hdf5_output_param {{ file_name: "{tmp_path}/out.h5" }}'
    net = Net(net_text("HDF5Output", text, [(2, 3), (2,)], tops=0))
    net.forward({}, {}, {"b0": np.ones((2, 3), np.uint8), "b1": np.ones(2, np.int32)})
    assert (tmp_path / "out.h5").stat().st_size > 0
