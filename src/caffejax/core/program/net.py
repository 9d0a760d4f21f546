"""A net as pure functions: `init` creates params and state, `apply` runs the layers, `loss` sums the losses."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from ...base.config import NetConfig, Options, resolve_options
from ...base.errors import CaffejaxError, DataError, GraphError, Problem, WeightsError, describe_type
from ...base.fork_guard import raise_after_fork
from ...base.human_readable import format_number
from ...base.variables import Blobs, Outputs, Params, ParamsLike, Variables, as_params
from ..checkpoints.load_save import Initializer, load_and_report, save_weights
from ..checkpoints.match_by_name import LoadReport
from ..graph import Graph, Param, Slot, build_graph, make_inference_graph, make_net_state
from ..graph.array_inputs import replace_data_layers, suggest_array_inputs
from ..graph.graph import map_params
from ..graph.index_ranges import IndexRange, check_labels, find_index_ranges
from ..graph.reshape import reshape_graph, with_batch
from ..graph.resolve import has_loss
from ..layers import Phase, Source
from ..layers.dtype_policy import to_float32
from ..layers.fillers import is_random
from ..layers.host_call import is_traced
from ..ops import compilation
from ..ops.implementations import find_form
from ..schema import read_valid_part, source_file
from ..schema.caffe_pb2 import TEST, TRAIN, NetParameter, NetState, SolverParameter
from .callbacks import find_layers_outside_programs, schedule_for_tracing
from .frozen import Frozen, freeze_as_program
from .initial_variables import make_initial_variables
from .interpreter import CompiledParts, ComputePart, PassInputs, PassOutputs, compute_part, run_schedule
from .memory_check import check_layers_fit
from .net_arguments import (
    add_shape_hints,
    as_variables,
    check_blob_names,
    check_inputs_and_variables,
    check_key,
    check_selection,
    check_variables,
)
from .rematerialize import Rematerializer, compute_part_with_remat
from .schedule import LayerSchedule, schedule_layers, strip_blob_padding, unfuse

log = logging.getLogger("caffejax.net")


@raise_after_fork("init", "freeze", "apply", "loss")
class Net:
    """A Caffe net for one phase, as pure functions of params, state and inputs.

    Params and state are pytrees `{layer: {name: array}}`; see `Variables`.

        net = caffejax.Net("train_val.prototxt", phase="TRAIN")
        params, state = net.init(jax.random.key(0))
        blobs, state = net.apply(params, state, {"data": images, "label": labels}, key=key)
        (loss, outputs), grads = jax.value_and_grad(net.loss, has_aux=True)(params, state, inputs, key)

    Args:
        model: the path of a prototxt, its text, or a NetParameter.
        phase: "TRAIN" or "TEST".
        level: the level that the layers' include and exclude rules compare with `min_level` and `max_level`.
        stages: the stages that the layers' include and exclude rules test.
        state: a complete NetState, instead of `phase`, `level` and `stages`.
        inputs: the shapes of the tops of all data layers, `{blob: shape}`, to pass arrays instead of reading data: the
            data layers become Input layers, whose arrays are used as they are, without transform_param, and no source
            is opened. Tops of Input layers may be named, too. An array stands for its shape.
        config: how the net computes and reads its data.
        file: the file that a NetParameter was read from. Error messages name it, and relative paths start there.
        options: fields of `NetConfig` by name, which override those of `config`.

    Attributes:
        graph: the layers with names, shapes and connections.
        config: the options.
        layer_schedule: the order and grouping in which the layers run.
        compute_part: the function that computes one part of the schedule.
        rematerializer: the object that chooses the layers to recompute in the backward pass, or None if `remat` is not
            "auto".

    Raises:
        SchemaError: if the file cannot be read or its text is invalid. The message also names other problems of the
            net.
        GraphError: if the net is invalid. The message names all problems.
        CaffejaxError: if options have invalid values.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | NetParameter,
        phase: Phase = "TEST",
        *,
        level: int = 0,
        stages: Sequence[str] = (),
        state: NetState | None = None,
        inputs: Mapping[str, Any] | None = None,
        config: NetConfig = NetConfig(),
        file: str | None = None,
        **options: Unpack[Options],
    ) -> None:
        check_selection(phase=phase, level=level, stages=stages)
        self.config = resolve_options(config, options)
        message, text_problems = read_valid_part(model)
        if file is None and (path := source_file(model)) is not None:
            file = str(path)
        net_state = state or make_net_state(message, phase, level, stages)
        if inputs is not None:
            message = replace_data_layers(message, net_state, inputs, file)
        self._definition = message, net_state, file
        self._reshaped = False  # True if the graph differs from the definition's
        try:
            graph = build_graph(
                message,
                net_state,
                file=file,
                config=self.config,
                text_problems=text_problems,
            )
        except GraphError as error:
            if state is not None:  # the caller, such as a solver, may have no array
                raise
            raise suggest_array_inputs(error, message) from error.__cause__
        self._set_graph(graph)

    def __reduce__(self) -> Any:
        # a net is pickled as its definition and built again; compiled functions are not pickled
        message, state, file = self._definition
        options = {"config": self.config, "file": file}
        definition = message.SerializeToString(), state.SerializeToString(), options
        return _unpickle, (type(self), *definition, self.graph if self._reshaped else self.graph.phase)

    def __copy__(self) -> Net:
        return self.with_graph(self.graph)

    def with_graph(self, graph: Graph, reshaped: bool = False) -> Net:
        """Return a net with the same options and a different graph.

        Args:
            graph: the graph.
            reshaped: whether it differs from the definition's graph in other ways than the phase.
        """
        net = object.__new__(type(self))
        vars(net).update(vars(self))
        net._reshaped = self._reshaped or reshaped
        net._set_graph(graph)
        return net

    def _set_graph(self, graph: Graph) -> None:
        self.graph = graph
        self.layer_schedule = schedule_layers(graph)
        self.compute_part: ComputePart = CompiledParts(self.config.kernels) if graph.has_host_layers else compute_part
        self.rematerializer: Rematerializer | None = None
        if self.config.remat == "auto" and graph.layers and not graph.has_host_layers:
            self.rematerializer = Rematerializer(self.layer_schedule, self.config.memory_limit)
        elif self.config.remat == "auto" and (outside := find_layers_outside_programs(graph)):
            names = ", ".join(f"'{layer.name}'" for layer in outside)
            log.warning(
                "no layers are recomputed, because these may give their tops other shapes in each pass: %s", names
            )
        self._checked_memory = False
        self._traced_net: Net | None = None
        self._label_ranges: Mapping[str, Sequence[IndexRange]] | None = None  # computed in the first pass
        self._forward = self.jit(self.apply, static_argnames="blobs")
        self._net_in_other_phase: Net | None = None

    # -- description

    def __repr__(self) -> str:
        count = sum(prod(p.spec.shape) for p in self.graph.unique_params)
        return f"Net {self.graph!r}; {format_number(count) if count else 'no'} parameters"

    @property
    def host_layers(self) -> tuple[str, ...]:
        """The names of the layers that run on the host, as Python layers with Caffe's interface do.

        In code that JAX traces they are callbacks. A Filter, which is traced there, is not among them.
        """
        return tuple(x.name for x in self.graph.layers if x.type.on_host and not x.type.has_traced_form)

    @property
    def has_host_layers(self) -> bool:
        """True if some layers run on the host; see `host_layers`."""
        return self.graph.has_host_layers

    @property
    def runs_in_parts(self) -> bool:
        """True if the net has host layers, and runs in parts between them, unless JAX traces it."""
        return isinstance(self.compute_part, CompiledParts)

    def with_schedule(self, schedule: LayerSchedule) -> Net:
        """Return the net with a schedule of one part, which runs in functions that `jit` compiles."""
        net = object.__new__(type(self))
        vars(net).update(vars(self))
        net.layer_schedule, net.compute_part = schedule, compute_part
        if self.config.remat == "auto":
            net.rematerializer = Rematerializer(schedule, self.config.memory_limit)
        net._forward = net.jit(net.apply, static_argnames="blobs")
        return net

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the blobs that `inputs` must contain: tops of Input and data layers."""
        return self.graph.input_names

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the blobs that no layer reads."""
        return self.graph.outputs

    def map_params(self, value: Callable[[Param], Any]) -> Any:
        """Return `{layer: {name: value(param)}}` for every param and running statistic.

        Params whose value is None are omitted, and so are layers without any value.

            def label(param):  # for optax.multi_transform; running statistics are not in params
                return ("trained" if param.lr_mult else "frozen") if param.spec.learnable else None

            labels = net.map_params(label)

        Args:
            value: a function of a `Param`, which has `slot`, `spec`, `lr_mult`, `decay_mult` and other attributes.
        """
        return map_params((p for p in self.graph.params if p.is_owner), value)

    # -- other nets with the same layers

    def with_batch(self, batch: int, axis: int = 0) -> Net:
        """Return the same net for a different batch size, the length of axis `axis` in all inputs.

        Raises:
            GraphError: if a layer does not accept the batch size, or its params would change shape. The message names
                each such layer.
        """
        return self.with_graph(with_batch(self.graph, batch, axis), reshaped=True)

    def for_inference(self, outputs: Iterable[str] | None = None) -> Net:
        """Return a net for phase TEST with only the layers that the given blobs need. The same variables fit it.

        Its layers are some of this net's: include and exclude rules are not applied again. So a net built for phase
        TRAIN has the scores that its loss reads, and a layer that only phase TEST has, such as the Softmax `prob`, is
        in the result only if this net was built for TEST.

        Args:
            outputs: names of the blobs to compute. Default: the net's outputs, where losses and metrics are replaced by
                the predictions that they compare with labels.

        Raises:
            GraphError: if the net does not have some of the blobs. The message names them.
        """
        test = self.with_phase("TEST")
        names = None if outputs is None else check_blob_names(test.graph, "outputs", outputs)
        return test.with_graph(make_inference_graph(test.graph, names), reshaped=True)

    def first_layers(self, last: int) -> Net:
        """Return the net of layers 0 to `last`, inclusive. The same variables fit it."""
        layers = self.graph.layers[: last + 1]
        blobs = {top: self.graph.blobs[top] for layer in layers for top in layer.tops}
        blobs_read = {bottom for layer in layers for bottom in layer.bottoms}
        outputs = tuple(name for name in blobs if name not in blobs_read)
        return self.with_graph(replace(self.graph, layers=layers, blobs=blobs, outputs=outputs), reshaped=True)

    def with_config(self, config: NetConfig) -> Net:
        """Return the net with a different `config`. Input shapes do not change."""
        message, state, file = self._definition
        net = type(self)(message, state=state, file=file, config=config).with_phase(self.graph.phase)
        return net.with_graph(
            reshape_graph(net.graph, {name: self.graph.blobs[name].shape for name in self.input_names}),
            self._reshaped,
        )

    def with_phase(self, phase: Phase) -> Net:
        """Return a net of the same layers in the given phase. Include and exclude rules are not applied again."""
        if phase == self.graph.phase:
            return self
        if self._net_in_other_phase is None:
            net = self.with_graph(self.graph.with_phase(phase))
            self._net_in_other_phase, net._net_in_other_phase = net, self
        return self._net_in_other_phase

    def freeze(
        self,
        variables: Variables,
        outputs: Iterable[str] | None = None,
        *,
        precision: str | None = None,
        calibration: Iterable[Mapping[str, Any]] | None = None,
    ) -> Frozen:
        """Compile the net in phase TEST for fixed params and state, as a function from inputs to outputs.

        A net built for phase TRAIN gives the scores that its loss reads, without softmax; for probabilities freeze the
        net built for TEST, whose `prob` they usually are. See `for_inference`.

        Args:
            variables: params and state.
            outputs: names of the blobs to compute; see `for_inference`.
            precision: "bfloat16", "int8", "float32" or "tf32"; default: the net's. In "bfloat16" and "int8", CPUs that
                have instructions for these types compute convolutions and inner products in them; inputs and outputs
                are float32. Other CPUs log a warning, and compute in float32.
            calibration: batches of typical inputs, `{blob: array}`, for "int8". The integers of each blob cover the
                range that the blob has on these batches.

        Raises:
            CaffejaxError: if the precision is unknown, or if the calibration is missing, is empty, does not fit the
                net's inputs, or gives NaN or infinity.
            GraphError: if the net does not have some of the blobs. The message names them.
            WeightsError: if arrays of params or state are missing, or have a wrong shape or type. The message names
                each of them.
        """
        variables = as_variables(variables)
        has_batches = isinstance(calibration, Iterable) and not isinstance(
            calibration, np.ndarray | jax.Array | Mapping
        )
        if has_batches != (precision == "int8") or not (has_batches or calibration is None):
            raise CaffejaxError(
                'precision="int8" needs calibration, a list of batches of typical inputs {blob: array}, and other '
                f"precisions must have none, but precision is {precision!r} and calibration is "
                f"{describe_type(calibration)}"
            )
        freeze = find_form("freeze") or freeze_as_program
        return freeze(self, variables, outputs, precision, calibration)

    def jit(
        self,
        function: Callable[..., Any],
        *,
        stored_as: str | None = None,
        solver_param: SolverParameter | None = None,
        **options: Any,
    ) -> Callable[..., Any]:
        """Compile a function that runs the net, like `jax.jit`.

        If the net runs in parts, the function is returned unchanged. The layers between host layers are compiled in
        either case.

        Args:
            function: the function.
            stored_as: a name that no other function of this net has, to store the programs on disk where the process
                stores programs, or None to store nothing.
            solver_param: the solver's settings on which a stored function depends, too, or None.
            options: options of `jax.jit`.
        """
        if self.runs_in_parts:
            return function
        make_key = None if stored_as is None else find_form("program_key")
        key = None if make_key is None else make_key(stored_as, self, solver_param)
        return compilation.Jitted(function, self.config.kernels, cache_key=key, **options)

    def sources(self) -> dict[str, Source]:
        """Open the source of each data layer; return the sources by the layers' keys. The caller closes them.

        Every call opens new sources. A Python layer that reads data is an exception: the layer itself is the source,
        and continues from its current position.
        """
        from ..data.loader import open_sources  # not imported for inference

        return open_sources(self.graph)

    def preprocess(self, pixels: Any, name: str | None = None) -> jax.Array:
        """Return pixels as a data layer makes them from its source, without the random parts of its transform_param.

        The mean is subtracted, the result multiplied by the scale, and pixels that are larger than `crop_size` are
        cropped in the center, in both phases; they are not mirrored. So augmented pixels, which are floats, become what
        `apply` and `loss` need, which take floats as they are and transform uint8 only:

            inputs = {"data": net.preprocess(augmented_pixels), "label": labels}

        The function can be traced and differentiated. Settings that SSD's AnnotatedData adds, such as resize_param, are
        not applied.

        Args:
            pixels: an array (N, C, H, W), or (C, H, W) for one image, of integers or floats in the range of the
                source's pixels, usually 0 to 255.
            name: the input that the pixels are for, or None if one data layer has images.

        Returns:
            An array (N, C, h, w), or (C, h, w), which is float64 for float64 pixels, otherwise float32.

        Raises:
            GraphError: if the name is not an input of a data layer with images, or None where there are several.
            DataError: if the pixels do not fit the mean or the crop.
        """
        from ..data.transform import Normalize, parse_crop, preprocess_pixels  # not imported for inference

        layers = {layer.tops[0]: layer for layer in self.graph.layers if isinstance(layer.device_transform, Normalize)}
        if name not in layers and (name is not None or len(layers) != 1):
            names = ", ".join(f"'{top}'" for top in layers) or "none"
            raise GraphError(
                Problem(
                    f"preprocess needs the name of an input of a data layer with images, not {name!r}; in phase "
                    f"{self.graph.phase} the net has {names}",
                    self.graph.file,
                )
            )
        layer = layers[next(iter(layers)) if name is None else name]
        normalize, param = layer.device_transform, layer.definition.layer.transform_param
        array, num_axes = jnp.asarray(pixels), len(self.graph.blobs[layer.tops[0]].shape)
        with layer.locate_errors():
            if array.ndim not in (num_axes - 1, num_axes):
                raise DataError(f"pixels must have {num_axes} axes, or {num_axes - 1} for one image, not {array.ndim}")
            assert isinstance(normalize, Normalize)
            return preprocess_pixels(array, normalize, parse_crop(param, is_random=False))

    # -- params and state

    def init(self, key: jax.Array, dtype: Any = jnp.float32, shardings: Any = None) -> Variables:
        """Create initial params and state with the layers' fillers.

        The values depend only on the key, the layer's name and the param's index, so adding or removing other layers
        does not change them.

        Args:
            key: a random key, such as `jax.random.key(0)`.
            dtype: the dtype of the arrays.
            shardings: a tree like params. Params whose sharding splits them over devices are created in shards, so they
                may be larger than the memory of one device. All processes must call this method together.

        Raises:
            GraphError: if layers do not fit into memory. The message names each of them.
        """
        check_key(key)
        if not isinstance(key, jax.core.Tracer):  # tracing takes no memory
            check_layers_fit(self.graph, shardings)
        return make_initial_variables(self.graph, key, dtype, as_params(shardings or {}))

    def initializer(self, key: jax.Array | None = None) -> Initializer:
        """Return a function that takes loaded arrays by `Slot`, and returns variables with initial values for others.

        Args:
            key: a random key; default: `jax.random.key(0)`.
        """
        if key is not None:
            check_key(key)
        check_layers_fit(self.graph)

        def initialize(loaded: Mapping[Slot, jax.Array]) -> Variables:
            needs_key = any(p.slot not in loaded and is_random(p.spec.filler) for p in self.graph.variables)
            # a key is created only if it is needed, because that compiles a program and takes 40 MiB
            base_key = jax.random.key(0) if key is None and needs_key else key
            return make_initial_variables(self.graph, base_key, jnp.float32, {}, loaded)

        return initialize

    def load(
        self,
        path: str | os.PathLike[str],
        variables: Variables | None = None,
        *,
        key: jax.Array | None = None,
        strict: bool = False,
        exclude: Iterable[str] = (),
        names: Mapping[str, str] | None = None,
    ) -> Variables:
        """Return params and state with the weights of a file, matched by layer name.

        For the arguments, see `load_and_report`.

        Raises:
            WeightsError: see `load_and_report`.
            CaffejaxError: if `key` is not a random key.
        """
        return self.load_and_report(path, variables, key=key, strict=strict, exclude=exclude, names=names)[0]

    def load_and_report(
        self,
        path: str | os.PathLike[str],
        variables: Variables | None = None,
        *,
        key: jax.Array | None = None,
        strict: bool = False,
        exclude: Iterable[str] = (),
        names: Mapping[str, str] | None = None,
    ) -> tuple[Variables, LoadReport]:
        """Return params and state with the weights of a file, and a report of layers loaded, skipped and missing.

        Args:
            path: a .caffemodel, .h5, .npz or .safetensors file, an .orbax folder, or one step in it.
            variables: values for blobs that the file does not have; default: initial values, see `init`.
            key: a random key for initial values; default: `jax.random.key(0)`.
            strict: raise an error if the file lacks weights of any layer that is not in `exclude`.
            exclude: names of layers that keep their values, even if the file has weights for them.
            names: for a file of other names, `{name in the file: "<layer>.<blob>"}`, such as
                `{"features.0.weight": "conv1.weight"}`. Only for .npz and .safetensors files.

        Raises:
            WeightsError: if the file cannot be read, if it lacks a name of `names`, if a name in `exclude` is not a
                layer of the net, if blobs of a layer differ in number or shape, or if `strict` is true and a layer has
                no weights. The message names each such layer.
        """
        start = self.initializer(key) if variables is None else variables
        return load_and_report(path, self.graph, start, strict, tuple(exclude), names)

    def save(self, params: ParamsLike, state: ParamsLike, path: str | os.PathLike[str]) -> None:
        """Write params and state to a file.

        The suffix of the path determines the format, which is one of the formats of `load`.

        Raises:
            WeightsError: if params do not fit the net, the suffix is unknown, or the file cannot be written. An
                existing file is then unchanged.
        """
        if isinstance(params, str | os.PathLike):
            raise WeightsError("the path is the last argument of save: call net.save(params, state, path)")
        save_weights(path, self.graph, check_variables(self.graph, params, state))

    def rewrite_params(self, params: ParamsLike) -> Params:
        """Return params as they are after Caffe's forward pass, in which layers of some types modify their params.

        See `ParamSpec.rewrite`.
        """
        indexed = as_params(params)
        changes = map_params(
            self.graph.unique_params, lambda p: p.spec.rewrite and p.spec.rewrite(p.array(indexed, {}))
        )
        return {**indexed, **{layer: {**indexed[layer], **blobs} for layer, blobs in changes.items()}}

    # -- passes

    def apply(
        self,
        params: ParamsLike,
        state: ParamsLike,
        inputs: Mapping[str, jax.Array],
        key: jax.Array | None = None,
        *,
        blobs: Iterable[str] | None = None,
    ) -> tuple[Blobs, Params]:
        """Run one forward pass.

        Args:
            params: the params, for example from `init`.
            state: running statistics and recurrent state, in the same form.
            inputs: an array for each blob in `input_names`, with the shape in `graph.blobs`. The length of the first
                axis, the batch, may differ. Labels may be integers.
            key: random key for layers that are random in this phase, such as Dropout.
            blobs: names of the blobs to return; default: the net's outputs. A blob that is computed in place has its
                last value.

        Returns:
            The blobs by name, and the new state. Blobs are float32, also with precision "bfloat16".

        Raises:
            CaffejaxError: if arguments are missing, unknown or of a wrong shape. The message names each of them.
            LayerError: if a layer does not accept inputs of these shapes and dtypes. The message names the layer.
        """
        names = self.outputs if blobs is None else check_blob_names(self.graph, "blobs", blobs)
        result = self._run(PassInputs(params, state, inputs, key, {}), names)
        return self._select(result.values, names), result.state

    def forward(
        self,
        params: ParamsLike,
        state: ParamsLike,
        inputs: Mapping[str, jax.Array],
        key: jax.Array | None = None,
        *,
        blobs: Iterable[str] | None = None,
    ) -> tuple[Blobs, Params]:
        """Run one forward pass like `apply`, compiled with the compiler options that are fastest on a CPU."""
        outputs: tuple[Blobs, Params] = self._forward(
            params, state, inputs, key=key, blobs=blobs if blobs is None else tuple(blobs)
        )
        return outputs

    def loss(
        self,
        params: ParamsLike,
        state: ParamsLike,
        inputs: Mapping[str, jax.Array],
        key: jax.Array | None = None,
        *,
        blobs: Iterable[str] | None = None,
        perturbations: Mapping[str, jax.Array] | None = None,
        required: bool = True,
    ) -> tuple[jax.Array, Outputs]:
        """Return the sum of all tops times their loss weights, for `jax.value_and_grad(..., has_aux=True)`.

        Args:
            params, state, inputs, key, blobs: see `apply`.
            perturbations: arrays of zeros by blob name, in the blobs' shapes, which are added to the blobs. The
                gradient with respect to a perturbation is the blob's diff in Caffe. It exists even where Caffe would
                not compute it.
            required: whether a net without a loss is an error; otherwise its loss is 0, as that of a net for a test.

        Returns:
            The loss, a float32 scalar, and the blobs and new state as `Outputs`.

        Raises:
            CaffejaxError, LayerError: see `apply`.
            GraphError: if a loss is required and the net has none, so that all gradients would be zero.
            DataError: if a label is not a class of a loss or a metric. Labels are not checked in traced code.
        """
        if required and not self.graph.loss_weights:
            raise GraphError(Problem(self._missing_loss(), file=self.graph.file))
        names = self.outputs if blobs is None else check_blob_names(self.graph, "blobs", blobs)
        result = self._run(PassInputs(params, state, inputs, key, perturbations or {}), names, training=True)
        return result.loss, Outputs(self._select(result.values, names), result.state)

    def _missing_loss(self) -> str:
        message, state, _ = self._definition
        other_state, other_phase = NetState(), "TEST" if state.phase == TRAIN else "TRAIN"
        other_state.CopyFrom(state)
        other_state.phase = TEST if state.phase == TRAIN else TRAIN
        remedy = (
            f"build it with phase='{other_phase}'"
            if has_loss(message, other_state)
            else "add a loss layer, or set a loss_weight"
        )
        return f"this net has no loss in phase {self.graph.phase}; {remedy}"

    def check_labels(self, blobs: Mapping[str, Any]) -> None:
        """Check that labels are classes of the layers that read them. In traced code nothing is checked.

        Args:
            blobs: the net's inputs by name, arrays of any of JAX's or NumPy's types; others than labels are ignored.

        Raises:
            DataError: if a label is not a class; the message names the layer, the blob and the first such row.
        """
        if any(isinstance(value, jax.core.Tracer) for value in jax.tree.leaves(dict(blobs))):
            return
        if self._label_ranges is None:
            self._label_ranges = find_index_ranges(self.graph)
        labels = {name: blobs[name] for name in self._label_ranges if name in blobs}
        local = {name: value for name, value in labels.items() if getattr(value, "is_fully_addressable", True)}
        check_labels({name: np.asarray(value) for name, value in local.items()}, self._label_ranges)

    def strip_padding(self, blobs: Blobs) -> Blobs:
        """Return blobs without padded rows, in Caffe's shapes.

        In compiled code, a top whose number of rows depends on the data, such as the top of DetectionOutput, is padded
        to the largest possible number of rows. Blobs that are computed from it row by row are padded, too; they are
        trimmed only if `blobs` also contains that top. This method cannot be called in compiled code.
        """
        return strip_blob_padding(self.graph, blobs)

    def _run(self, inputs: PassInputs, names: tuple[str, ...], *, training: bool = False) -> PassOutputs:
        """Run the net up to the blobs in `names`. If `training` is true, use the schedule with rematerialization."""
        if self.runs_in_parts and is_traced(inputs):
            if self._traced_net is None:
                self._traced_net = self.with_schedule(schedule_for_tracing(self.graph))
            return self._traced_net._run(inputs, names, training=training)
        inputs = check_inputs_and_variables(self.graph, inputs)
        if not self._checked_memory and not isinstance(next(iter(inputs.blobs.values()), None), jax.core.Tracer):
            check_layers_fit(self.graph)
            self._checked_memory = True
        if training:
            self.check_labels(inputs.blobs)
        # the setting is for the user's own code; layers broadcast as NumPy does
        with add_shape_hints(self.graph, inputs.blobs), jax.numpy_rank_promotion("allow"):
            schedule, compute = self.layer_schedule, self.compute_part
            if training and self.rematerializer:
                schedule, compute = self.rematerializer.make_schedule(inputs), compute_part_with_remat
            elif self.runs_in_parts:
                inputs = inputs._replace(blobs=strip_blob_padding(self.graph, inputs.blobs))
            schedule = unfuse(schedule, frozenset(inputs.perturbations))
            return run_schedule(schedule, inputs, output_names=names, compute=compute)

    def _select(self, values: Blobs, names: Iterable[str]) -> Blobs:
        convert = to_float32 if self.config.precision == "bfloat16" else lambda value: value
        return {name: convert(values[name]) for name in names}


def _unpickle(net_class: Any, message: bytes, state: bytes, options: dict[str, Any], graph: Phase | Graph) -> Any:
    """Rebuild a pickled net. `graph` is the net's graph if it was reshaped, otherwise its phase."""
    net = net_class(NetParameter.FromString(message), state=NetState.FromString(state), **options)
    return net.with_graph(graph, reshaped=True) if isinstance(graph, Graph) else net.with_phase(graph)
