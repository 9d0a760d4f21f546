"""Bottoms of other shapes than a layer was built for: an error that names the layer, or the reference result."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from layer_nets import Replay, net_text

from caffejax import LayerTraits, LayerType, Signature, Traced
from caffejax.errors import CaffejaxError, LayerError
from caffejax.execution import PassInputs, compute_part, make_part
from caffejax.kernels import onednn
from caffejax.kernels.window import Window
from caffejax.layers import layer_type, layer_types, register_temporarily
from caffejax.net import Net
from golden_cases import ACCEPTED_CASES, case_params, first_case_by_type

FIRST = first_case_by_type(
    [c for c in ACCEPTED_CASES if c["type"] != "Python" and layer_type(c["type"]).signature.bottoms != 0]
)
MOVERS = {"Concat", "Crop", "Filter", "Flatten", "Im2col", "Reshape", "Silence", "Slice", "Split", "Tile"}

Shape = tuple[int, ...]


def test_every_type_that_has_bottoms_has_a_case() -> None:
    kinds = {n for n, kind in layer_types().items() if kind.signature.bottoms != 0 and kind.docs.origin == "BVLC"}
    # some of forks' are not recorded; HDF5Output writes whatever rows it is given, Python runs what users give
    assert kinds - {name.partition(" ")[0] for name in FIRST} == {"HDF5Output", "Python"}


class SingleLayer:
    """A recorded layer, run on bottoms of any shape and dtype."""

    def __init__(self, name: str, kernels: Any) -> None:
        self._replay = Replay(FIRST[name], kernels=kernels)
        self.layer = self._replay.layer
        self.built = {name: blob.shape for name, blob in self._replay.net.graph.blobs.items()}
        self.bottoms = {name: self.built[name] for name in self.layer.bottoms}

    def tops(self, shapes: dict[str, Shape], dtypes: dict[str, Any]) -> list[Shape] | str:
        """The tops' shapes, or the error's text."""
        bottoms = {b: jax.ShapeDtypeStruct(s, dtypes.get(b, jnp.float32)) for b, s in shapes.items()}
        try:
            if self.layer.type.on_host:
                values = self._run({b: np.ones(s.shape, s.dtype) for b, s in bottoms.items()})
            else:
                values = jax.eval_shape(self._run, bottoms)
        except CaffejaxError as error:
            return str(error)
        return [values[top].shape for top in self.layer.tops]

    def _run(self, bottoms: Any) -> Any:
        inputs = PassInputs(self._replay.params, self._replay.state, {}, jax.random.key(0), {})
        before = {name: jnp.asarray(x) for name, x in bottoms.items()}
        return compute_part(make_part((self.layer,)), inputs, before).values


def other_shapes(shape: Shape) -> Iterator[Shape]:
    """One axis fewer and one more; each axis longer, and of size 1."""
    yield from (shape[:-1], (*shape, 2), (2, *shape))
    for i, n in enumerate(shape):
        yield from ((*shape[:i], other, *shape[i + 1 :]) for other in {n + 1, 1} - {n})


@pytest.mark.parametrize("name", case_params(FIRST))
def test_shapes_that_a_layer_was_not_built_for(name: str) -> None:
    fast, reference = SingleLayer(name, "fast"), SingleLayer(name, "reference")
    results, built = fast.tops(fast.bottoms, {}), [fast.built[t] for t in fast.layer.tops]
    if getattr(fast.layer.type.implementation, "ragged", False):  # built for as many rows as there can be
        assert [shape[1:] for shape in results] == [shape[1:] for shape in built]
        assert all(shape[0] <= most[0] for shape, most in zip(results, built, strict=True))
    else:
        assert results == built
    for blob, shape in fast.bottoms.items():
        for other in other_shapes(shape):
            actual, expected = (alone.tops({**alone.bottoms, blob: other}, {}) for alone in (fast, reference))
            if isinstance(actual, str):
                assert actual.startswith(f"{fast.layer.definition.file}: layer 'layer' ({fast.layer.type.name}): ")
                assert isinstance(expected, str), (other, actual, expected)
            else:
                assert actual == expected, other


@pytest.mark.parametrize("name", case_params(FIRST))
def test_integer_bottoms_are_accepted_or_refused_by_name(name: str) -> None:
    alone = SingleLayer(name, "fast")
    kind = alone.layer.type
    for (i, blob), dtype in itertools.product(enumerate(alone.bottoms), (jnp.uint8, jnp.int32, jnp.bool_)):
        message = alone.tops(alone.bottoms, {blob: dtype})
        if i in alone.layer.index_bottoms or name in MOVERS or kind.traits.accepts_integers:
            assert message == alone.tops(alone.bottoms, {}), blob
        else:
            layer = f"{alone.layer.definition.file}: layer 'layer' ({kind.name})"
            assert str(message).startswith(
                f"{layer}: bottom {i} ('{blob}') has dtype {jnp.dtype(dtype)}, but the layer "
            )
            assert str(message).endswith("pass float32, for example with .astype(jnp.float32)")


CONVOLUTION = """
    layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } } }
    layer { name: "conv" type: "Convolution" bottom: "data" top: "y"
      convolution_param { num_output: 4 kernel_size: 3 } }
    layer { name: "norm" type: "BatchNorm" bottom: "y" top: "y" }
    layer { name: "scale" type: "Scale" bottom: "y" top: "y" scale_param { num_axes: %d bias_term: true } }
    layer { name: "relu" type: "ReLU" bottom: "y" top: "y" }
"""


@pytest.mark.parametrize("phase", ["TRAIN", "TEST"])
@pytest.mark.parametrize(
    ("axes", "shape", "words"),
    [
        (1, (2, 4, 8, 8), r"layer 'conv' .*blob 0 has shape \(4, 3, 3, 3\), .* needs shape \(4, 4, 3, 3\)"),
        (1, (3, 8, 8), r"layer 'conv' .*blob 0 has shape \(4, 3, 3, 3\), .* needs shape \(4, 8, 3\)"),
        (-1, (2, 3, 9, 9), r"layer 'scale' .*blob 0 has shape \(4, 6, 6\), .* needs shape \(4, 7, 7\)"),
    ],
)
def test_layers_that_are_computed_together(phase: Any, axes: int, shape: Shape, words: str) -> None:
    built = Net(CONVOLUTION % axes, phase)
    with pytest.raises(LayerError, match=words):
        built.forward(*built.init(jax.random.key(0)), {"data": np.zeros(shape, np.float32)})


def test_images_of_another_size_where_the_layers_allow_it() -> None:
    built = Net(CONVOLUTION % 1)
    tops, _ = built.forward(*built.init(jax.random.key(0)), {"data": np.zeros((1, 3, 20, 9), np.float32)})
    assert tops["y"].shape == (1, 4, 18, 7)


def test_a_batch_without_a_size() -> None:
    (batch,) = jax.export.symbolic_shape("b")
    built = Net(CONVOLUTION % 1, kernels="reference")
    params, state = built.init(jax.random.key(0))
    data = jax.ShapeDtypeStruct((batch, 3, 8, 8), jnp.float32)
    exported = jax.export.export(jax.jit(lambda x: built.apply(params, state, {"data": x})[0]["y"]))(data)
    assert exported.call(np.zeros((5, 3, 8, 8), np.float32)).shape == (5, 4, 6, 6)


def test_float16_bottoms_are_refused() -> None:
    built = Net(net_text("Convolution", "convolution_param { num_output: 4 kernel_size: 3 }", [(2, 3, 8, 8)]))
    words = r"layer 'layer' \(Convolution\): cannot take a bottom of shape \(2, 3, 8, 8\) float16: "
    with pytest.raises(LayerError, match=words):
        built.apply(*built.init(jax.random.key(0)), {"b0": np.zeros((2, 3, 8, 8), np.float16)})


class RefusalError(Exception):
    """A user's own."""


@pytest.mark.parametrize("error", [RefusalError, ValueError, LayerError])
def test_types_of_other_packages_are_asked_as_any(error: type[Exception]) -> None:
    def picky(ctx: Any, x: jax.Array) -> jax.Array:
        if x.shape[0] != 2:
            raise error("takes two rows")
        return x.astype(jnp.float32)

    with register_temporarily(
        LayerType(Signature("TestPicky"), Traced(picky), traits=LayerTraits(accepts_integers=True))
    ):
        built = Net(net_text("TestPicky", "", [(2, 3)]))
        assert built.forward({}, {}, {"b0": np.ones((2, 3), np.uint8)})[0]["t0"].dtype == jnp.float32
        with pytest.raises(LayerError, match=r"layer 'layer' \(TestPicky\): .*takes two rows") as exc_info:
            built.forward({}, {}, {"b0": np.ones((4, 3), np.float32)})
        assert error is LayerError or isinstance(exc_info.value.__cause__, error)


def test_mistakes_in_own_code_say_where_they_are() -> None:
    def broken(ctx: Any, x: jax.Array) -> jax.Array:
        return {}["k"]  # type: ignore[no-any-return]

    def branching(ctx: Any, x: jax.Array) -> jax.Array:
        return x if x[0, 0] > 0 else -x

    for run, kind in ((broken, "KeyError"), (branching, "TracerBoolConversionError")):
        with (
            register_temporarily(LayerType(Signature("TestBroken"), Traced(run))),
            pytest.raises(CaffejaxError) as exc_info,
        ):
            Net(net_text("TestBroken", "", [(2, 3)]))
        assert f"({kind} in {run.__name__}, {__file__}:" in str(exc_info.value)
        assert "layer 'layer' (TestBroken)" in str(exc_info.value)
        assert "\n" not in str(exc_info.value)


def test_labels_and_targets_of_integers_leave_gradients_alone() -> None:
    for kind, shapes in ("SoftmaxWithLoss", [(4, 3), (4,)]), ("EuclideanLoss", [(4, 3), (4, 3)]):
        for backward in ("autodiff", "rules"):
            built = Net(net_text(kind, "", shapes), "TRAIN", backward=backward)
            x, y = np.ones(shapes[0], np.float32), np.arange(np.prod(shapes[1])).reshape(shapes[1]) % 3

            def loss(x: Any, y: Any, built: Net = built) -> jax.Array:
                return built.loss({}, {}, {"b0": x, "b1": y})[0]

            integer_label_grad = jax.grad(loss)(x, y.astype(np.int32))
            np.testing.assert_array_equal(
                integer_label_grad, jax.grad(loss)(x, y.astype(np.float32)), err_msg=f"{kind} {backward}"
            )


@pytest.mark.skipif(onednn.unavailable_reason() is not None, reason="needs oneDNN")
def test_a_kernel_reads_no_further_than_its_arrays_go() -> None:
    one = jnp.ones
    with pytest.raises(ValueError, match="7 inputs, but the weight expects 6"):
        onednn.matmul(one((2, 7)), one((4, 6)), transpose_b=True)
    with pytest.raises(ValueError, match=r"the bias has shape \(3,\), but must have shape \(4,\)"):
        onednn.matmul(one((2, 6)), one((4, 6)), one(3), transpose_b=True)
    with pytest.raises(TypeError, match="float32, not float32, float32, float16"):
        onednn.matmul(one((2, 6)), one((4, 6)), one(4, jnp.float16), transpose_b=True)
    plain = Window.symmetric((3, 3), (1, 1), (0, 0))
    with pytest.raises(ValueError, match="3 inputs, but the weight expects 2"):
        onednn.convolution(one((1, 5, 5, 3)), one((4, 2, 3, 3)), None, plain)


def test_integer_blobs_can_be_written_to_a_file(tmp_path: Path) -> None:
    text = f'hdf5_output_param {{ file_name: "{tmp_path}/out.h5" }}'
    built = Net(net_text("HDF5Output", text, [(2, 3), (2,)], tops=0))
    built.forward({}, {}, {"b0": np.ones((2, 3), np.uint8), "b1": np.ones(2, np.int32)})
    assert (tmp_path / "out.h5").stat().st_size > 0
