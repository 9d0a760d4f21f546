"""Recording of dumps: a net is run once, and every blob, diff and gradient is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...._version import __version__
from ....base.errors import ArgumentValueError, DataError, GraphError, Problem, WeightsError
from ....base.variables import Variables
from ....core.checkpoints.match_by_name import reshape_to_net
from ....core.data.synthetic_inputs import complete_inputs
from ....core.graph import Graph, Layer, Slot, is_random
from ....core.program.net import Net
from ....core.program.schedule import find_padded_blobs
from ....core.schema.blob_proto import Array
from ....core.solver.intermediates import IsolatedInputs, LayerGradients, LayerTrace, Tops
from .compare_dumps import describe_mismatch
from .dump import Dump, DumpedLayer


class LegacyRandomState(np.random.RandomState):
    """NumPy's legacy generator, which samples the same numbers in all versions of NumPy, including old versions."""

    def integers(self, high: int, size: tuple[int, ...]) -> Any:
        """Sample an array of integers from 0 to `high - 1`."""
        return self.randint(high, size=size)


def record_dump(
    net: Net,
    variables: Variables,
    inputs: Mapping[str, Any] | None = None,
    *,
    backward: bool = False,
    seed: int = 0,
    isolated: IsolatedInputs | None = None,
) -> Dump:
    """Run a net once, and return a dump of every blob and, with `backward`, every diff and gradient.

    Args:
        net: the net.
        variables: parameters and state.
        inputs: the inputs by blob. If tops of data layers are missing, the first batches of the layers are used. If
            tops of Input layers are missing, they are sampled in order with NumPy's `RandomState(seed)`: as normal
            numbers, as integers if a layer reads them as labels, or as boxes if a MultiBoxLoss reads them as ground
            truth.
        backward: whether to run the backward pass as well.
        seed: the seed of random inputs and of random layers, from 0 to 2**32 - 1.
        isolated: the arrays that each layer reads, instead of the results of the layers around it, or None.

    Raises:
        ArgumentValueError: if NumPy has no such seed.
        GraphError: if the inputs do not fit the net or, with `backward`, if the net has no loss or no gradients.
        DataError: if the net's data cannot be read.
    """
    if backward:
        _check_loss(net.graph)
    if not 0 <= seed < 2**32:
        raise ArgumentValueError(f"the seed must be an integer from 0 to 2**32 - 1, not {seed}")
    rng: Any = LegacyRandomState(seed)
    with np.errstate(over="ignore"):  # large float64 numbers become infinite in float32
        inputs_with_defaults = {
            name: np.float32(x) for name, x in complete_inputs(net.graph, inputs or {}, rng).items()
        }
    key = jax.random.key(seed)

    bottom_shapes: dict[str, list[jax.ShapeDtypeStruct]] = {}  # shapes of bottoms; their values would double the memory

    def run_pass(
        params: Any, state: Any, batch: Any, key: Any, isolated: IsolatedInputs | None
    ) -> tuple[Tops, Tops, dict[str, LayerGradients] | None]:
        trace = LayerTrace(net, params, state, batch, key, backward=backward, isolated=isolated)
        host_bottoms: Tops = {}
        tops: Tops = {}
        for layer, bottoms, layer_tops in trace.forward():
            bottom_shapes[layer.key] = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in bottoms]
            tops[layer.key] = layer_tops
            if layer.type.on_host:
                host_bottoms[layer.key] = bottoms
        return host_bottoms, tops, trace.gradients() if backward else None

    host_bottoms, tops, gradients = jax.device_get(net.jit(run_pass)(*variables, inputs_with_defaults, key, isolated))
    arrays: dict[str, Any] = {f"input/{name}": x for name, x in inputs_with_defaults.items()}
    arrays |= _name_params(net.graph, variables) | _name_blobs(net, tops, isolated)
    arrays["loss"] = np.float32(_sum_losses(net.graph, tops))
    if gradients is not None:
        arrays |= _name_diffs(net.graph, tops, gradients)
    bottoms = bottom_shapes | host_bottoms
    layers = tuple(
        DumpedLayer(layer.key, layer.type.name, layer.bottoms, layer.tops, is_random(layer, bottoms[layer.key]))
        for layer in net.graph.layers
    )
    # as float32, because .npz files have no bfloat16
    arrays = {
        name: np.asarray(x, None if np.asarray(x).dtype.kind in "biuf" else np.float32) for name, x in arrays.items()
    }
    maker = f"caffejax {__version__}"
    return Dump(maker, net.graph.name, net.graph.phase, layers, arrays, is_isolated=isolated is not None)


def _check_loss(graph: Graph) -> None:
    if not any(graph.loss_weights.values()):
        message = f"has no loss in phase {graph.phase}, so there is no backward pass to run"
        raise GraphError(Problem(f"{message}; omit --backward, or collect from the train net", graph.file))
    graph.check_backward()


def _name_params(graph: Graph, variables: Variables) -> dict[str, Any]:
    """Return the parameters of every layer as float32, by name. A shared parameter is repeated for each layer."""
    return {
        f"param/{layer.key}/{i}": np.float32(p.array(*variables))
        for layer in graph.layers
        for i, p in enumerate(layer.params)
    }


def _name_blobs(net: Net, tops: Tops, isolated: IsolatedInputs | None) -> dict[str, Any]:
    """Return the final value of every blob, and the tops that in-place layers overwrote, by name."""
    latest_values: dict[
        str, tuple[str, Any]
    ] = {}  # by blob: the key of the last layer so far that wrote it, and the value
    overwritten_tops: list[tuple[str, str, Any]] = []
    for layer in net.graph.layers:
        for name, value in zip(layer.tops, tops[layer.key], strict=True):
            if name in latest_values:
                overwritten_tops.append((name, *latest_values[name]))
            latest_values[name] = layer.key, value
    final_values = {name: value for name, (_, value) in latest_values.items()}
    trimmed_values = net.strip_padding(final_values)
    if isolated is not None:  # the number of rows of each top then depends on the layer's isolated bottoms
        bottoms = {name: x for blobs in isolated.bottoms.values() for name, x in blobs.items()}
        trimmed_values = {
            name: net.strip_padding({**bottoms, name: value})[name] for name, value in final_values.items()
        }
    blobs = {f"blob/{name}": value for name, value in trimmed_values.items()}
    return blobs | {
        f"top/{key}/{name}": net.strip_padding({**final_values, name: value})[name]
        for name, key, value in overwritten_tops
    }


def _sum_losses(graph: Graph, tops: Tops) -> float:
    weighted_tops = ((w, top) for x in graph.layers for w, top in zip(x.loss_weights, tops[x.key], strict=True))
    return sum(float(weight * np.sum(top, dtype=np.float64)) for weight, top in weighted_tops if weight)


def _name_diffs(graph: Graph, tops: Tops, gradients: Mapping[str, LayerGradients]) -> dict[str, Any]:
    """Return the diffs of blobs and parameters by name. A parameter's diff is the sum over the layers that share it."""
    diffs: dict[str, Any] = {}
    producers: dict[str, Layer] = {}
    grads: dict[Slot, Any] = {}
    for layer in graph.layers:
        for name, diff in zip(layer.bottoms, gradients[layer.key].bottoms, strict=True):
            if diff is not None:
                diffs[_get_diff_name(producers[name], name)] = diff
        for name, weight, top in zip(layer.tops, layer.loss_weights, tops[layer.key], strict=True):
            producers[name] = layer
            if weight:
                diffs[_get_diff_name(layer, name)] = np.full_like(top, weight)
        for param, gradient in zip(layer.params, gradients[layer.key].params, strict=True):
            if gradient is not None:
                grads[param.owner] = grads.get(param.owner, 0) + gradient
    return diffs | {
        f"grad/{layer.key}/{i}": grads[p.owner].reshape(p.spec.shape)
        for layer in graph.layers
        for i, p in enumerate(layer.params)
        if p.owner in grads
    }


def _get_diff_name(producer: Layer, blob: str) -> str:
    return f"top_diff/{producer.key}/{blob}" if blob in producer.bottoms else f"diff/{blob}"


def replay_dump(
    dump: Dump, net: Net, variables: Variables | None = None, *, seed: int = 0, isolate_layers: bool = False
) -> Dump:
    """Run a net on a dump's inputs, and return the dump of the net. The backward pass is run if the dump has diffs.

    Args:
        dump: the dump.
        net: the net.
        variables: the parameters and state, or None for the dump's parameters.
        seed: the seed of random layers.
        isolate_layers: whether each layer runs on the dump's bottoms and top diffs, instead of the results of the
            layers around it. The error of one layer then does not affect the values of other layers.

    Raises:
        CaffejaxError: if inputs or parameters do not fit the net; the message names each of them.
    """
    net_types = {layer.key: layer.type.name for layer in net.graph.layers}
    dumped_types = {layer.name: layer.type for layer in dump.layers}
    if mismatch := describe_mismatch(
        f"the dump is of net '{dump.net}'", dumped_types, f"the model is '{net.graph.name}'", net_types
    ):
        raise DataError(Problem(mismatch, dump.file))
    dump_inputs = dump.arrays_of_kind("input")
    missing = [name for name in net.input_names if name not in dump_inputs]
    if missing:
        raise DataError(
            Problem(f"the net needs the input '{name}', but the dump has no 'input/{name}'", dump.file)
            for name in missing
        )
    inputs = {name: dump_inputs[name] for name in net.input_names}
    if variables is None:
        variables = read_variables(dump, net)
    isolated = _select_isolated_inputs(dump, net, variables, inputs) if isolate_layers else None
    return record_dump(net, variables, inputs, backward=dump.has_backward, seed=seed, isolated=isolated)


def _select_isolated_inputs(dump: Dump, net: Net, variables: Variables, inputs: Mapping[str, Array]) -> IsolatedInputs:
    """Return each layer's bottoms and top diffs from a dump, without arrays whose shapes do not fit the net."""
    blob_shapes, padded_names = _infer_blob_shapes(net, variables, inputs), find_padded_blobs(net.graph.layers)
    indices = {layer.name: i for i, layer in enumerate(dump.layers)}
    bottoms: dict[str, dict[str, Any]] = {}
    diffs: dict[str, dict[str, Any]] = {}

    def select_fitting(arrays: Mapping[str, Array | None]) -> dict[str, jax.Array]:
        return {
            name: jnp.asarray(x, blob_shapes[name].dtype)
            for name, x in arrays.items()
            if x is not None
            and _has_shape(x, blob_shapes[name], may_have_fewer_rows=name in padded_names or net.has_host_layers)
        }

    for layer in net.graph.layers:
        if layer.type.is_input or (i := indices.get(layer.key)) is None:
            continue
        bottoms[layer.key] = select_fitting({name: dump.bottom_value(i, name) for name in layer.bottoms})
        if dump.has_backward and layer.need_backward:
            weights = dict(zip(layer.tops, layer.loss_weights, strict=True))
            losses = {name: np.full(blob_shapes[name].shape, weight) for name, weight in weights.items() if weight}
            recorded_diffs = {name: dump.top_diff(i, name) for name in layer.tops if name in dump.layers[i].tops}
            diffs[layer.key] = select_fitting(losses) | select_fitting(recorded_diffs)
    return IsolatedInputs(bottoms, diffs)


def _infer_blob_shapes(
    net: Net, variables: Variables, inputs: Mapping[str, Array]
) -> Mapping[str, jax.ShapeDtypeStruct]:
    """Return the shapes of a net's blobs for these inputs.

    For a net with host layers, these are the shapes from the prototxt, and the blobs may have fewer rows.
    """
    if net.has_host_layers:
        return net.graph.blobs
    names, key = tuple(net.graph.blobs), jax.random.key(0)
    shapes: Mapping[str, jax.ShapeDtypeStruct] = jax.eval_shape(
        lambda inputs: net.apply(*variables, inputs, key, blobs=names)[0], dict(inputs)
    )
    return shapes


def _has_shape(array: Array, blob: jax.ShapeDtypeStruct, *, may_have_fewer_rows: bool) -> bool:
    """Return whether an array has a blob's shape or, if `may_have_fewer_rows`, fewer rows."""
    return array.shape == blob.shape or (may_have_fewer_rows and array.ndim == blob.ndim and array.size <= blob.size)


def read_variables(dump: Dump, net: Net) -> Variables:
    """Return a dump's parameters as a net's variables. Recurrent state has its initial values.

    Raises:
        WeightsError: if parameters are missing or have wrong shapes; the message names each such layer.
    """
    problems: list[Problem] = []
    arrays_by_owner: dict[Any, Any] = {}
    for layer in net.graph.layers:
        dumped_blobs = dump.blobs_of("param", layer.key)
        blobs = [dumped_blobs.get(i) for i in range(max(dumped_blobs, default=-1) + 1)]
        if layer.params and not blobs:
            problems.append(
                Problem("the dump does not contain its parameters; pass a weights file", dump.file, layer=layer.name)
            )
            continue
        try:
            arrays = reshape_to_net(layer.name, blobs, [p.spec.shape for p in layer.params])
        except WeightsError as error:
            problems += [Problem(p.message, dump.file, layer=p.layer) for p in error.problems]
            continue
        arrays_by_owner |= {p.owner: array for p, array in zip(layer.params, arrays, strict=True) if p.is_owner}
    if problems:
        raise WeightsError(problems)

    def replace_params(tree: Any) -> Any:
        return {
            key: {
                i: jnp.asarray(arrays_by_owner[key, i], old.dtype) if (key, i) in arrays_by_owner else old
                for i, old in blobs.items()
            }
            for key, blobs in tree.items()
        }

    params, state = net.init(jax.random.key(0))
    return Variables(replace_params(params), replace_params(state))
