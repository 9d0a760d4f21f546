"""Descriptions of layer types: frozen dataclasses, whose values are set once, by `declaration.register`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, get_args

from ...base.human_readable import format_count
from .data_source import Position
from .layer_kinds import CallerInput as CallerInput
from .layer_kinds import Function
from .layer_kinds import HostFunction as HostFunction
from .layer_kinds import OutputFiles as OutputFiles
from .layer_kinds import PerLayer as PerLayer
from .layer_kinds import SourceInput as SourceInput
from .layer_kinds import TopFiller as TopFiller
from .layer_kinds import Traced as Traced
from .layer_kinds import Variants as Variants

Implementation = Traced | HostFunction | SourceInput | CallerInput | PerLayer | Variants
Count = int | tuple[int, int | None]  # exactly n, or (at least, at most or None)
DtypePolicy = Literal["float32", "bottoms", "products"]
DataMovement = Literal["nothing", "all", "some"]
SpatialMap = Literal["same", "windows", "transposed", "cropped", "unknown"]
Transform = Literal[
    "jit", "jvp", "second_order", "vmap", "shard", "shard_map", "joint_batch", "export", "symbolic_batch"
]

SAME_AS_BOTTOMS = "same as bottoms"
TRANSFORMS: Mapping[Transform, str] = MappingProxyType(
    {
        "jit": "be compiled with `jax.jit`",
        "jvp": "be differentiated in forward mode (`jax.jvp`)",
        "second_order": "be differentiated twice",
        "vmap": "be batched with `jax.vmap`",
        "shard": "be split by rows over devices with `jax.jit`, without communication",
        "shard_map": "be mapped over devices with `jax.shard_map`",
        "joint_batch": "treat the batches of several devices as one batch (`axis_name`)",
        "export": "be exported with `jax.export`",
        "symbolic_batch": "be exported for any number of rows",
    }
)
IS_CALLBACK = "it runs on the host, as a callback of the compiled program"
NOT_IN_CALLBACKS: tuple[Transform, ...] = ("shard", "export", "symbolic_batch")
NO_DERIVATIVES_OF_CALLBACKS: tuple[Transform, ...] = ("jvp", "second_order")
IMAGE_INDICES_PER_DEVICE = "rows hold the index of their image in the batch of the device, and padding comes after them"


@dataclass(frozen=True)
class SecondReading:
    """The other meaning of settings that forks understand differently. Nets whose shapes do not fit are read by it.

    Attributes:
        rewrite: `rewrite(layer)` changes a LayerParameter, so that it has this meaning as the type reads it. It returns
            whether it did, as the layer has such settings.
        description: a sentence about the meaning and the reason for it, for a warning.
    """

    rewrite: Callable[[Any], bool]
    description: str


@dataclass(frozen=True)
class Signature:
    """The form of the layers of a type in a prototxt.

    Attributes:
        name: Caffe's type name.
        bottoms: the number of bottoms: n for exactly n, or (minimum, maximum), where a maximum of None means no limit.
        tops: the number of tops in the same form, or `SAME_AS_BOTTOMS`.
        param: the field of LayerParameter that holds the type's settings, such as "convolution_param", or None.
        further_params: other fields of LayerParameter that hold settings of the type, except loss_param and
            transform_param.
        in_place: whether a top may have the name of a bottom.
        loss: whether the first top is a loss. Its loss_weight defaults to 1, and it exists even if the layer names no
            top.
        requires_loss_weight: whether the prototxt must set loss_weight, since forks disagree about its default.
        fork_settings: settings of forks that the type supports; any other setting of a fork is an error.
        aliases: other names that forks use for the type.
        max_blobs: the largest number of blobs that a layer of the type stores, if layers with more are a fork's
            variant of the type; otherwise None.
        second_reading: a `SecondReading` for types whose settings mean something else in another fork, or None.
    """

    name: str
    bottoms: Count = 1
    tops: Count | str = 1
    param: str | None = None
    further_params: tuple[str, ...] = ()
    in_place: bool = True
    loss: bool = False
    requires_loss_weight: bool = False
    fork_settings: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    max_blobs: int | None = None
    second_reading: SecondReading | None = None

    def iterate_count_problems(self, n_bottoms: int, n_tops: int) -> Iterator[str]:
        """Yield a message if a layer has a wrong number of bottoms, and a message if it has a wrong number of tops."""
        if not _is_in_range(n_bottoms, self.bottoms):
            yield f"takes {_format_count(self.bottoms, 'bottom')}, but has {n_bottoms}"
        tops = n_bottoms if isinstance(self.tops, str) else self.tops
        if not _is_in_range(n_tops, tops) and not (self.loss and n_tops == 0):
            yield f"produces {_format_count(tops, 'top')}, but has {n_tops}"


def unite_signatures(signatures: Sequence[Signature]) -> Signature:
    """Return a signature that all layers of several types of one name have. It is like the first in other respects."""
    tops = [s.tops for s in signatures if not isinstance(s.tops, str)]
    return replace(
        signatures[0],
        bottoms=_unite_counts([s.bottoms for s in signatures]),
        tops=_unite_counts(tops) if tops else SAME_AS_BOTTOMS,
        fork_settings=tuple(dict.fromkeys(setting for s in signatures for setting in s.fork_settings)),
        max_blobs=None,
    )


def _unite_counts(counts: Sequence[Count]) -> Count:
    if len(set(counts)) == 1:
        return counts[0]
    lows, highs = zip(*((n, n) if isinstance(n, int) else n for n in counts), strict=True)
    return min(lows), None if None in highs else max(highs)


@dataclass(frozen=True)
class Indices:
    """The bottoms that hold labels or indices. It is an error to request a gradient with respect to them.

    Attributes:
        bottoms: the positions of these bottoms among all bottoms, where -1 is the last bottom.
        num_classes: `num_classes(*bottoms)` returns the number of classes n, or None if the shapes do not
            determine it. Values of the first of these bottoms must be in 0 .. n - 1. Bottoms have `.shape`.
        ignore_label: `ignore_label()` returns a value outside 0 .. n - 1 that is allowed and has no effect, or None
            if all such values are errors.
        gathers: whether the values are indices of rows of an array. Forward then returns NaN for values out of range,
            and checks report such values. Otherwise the values are class numbers.
        ignores_gradient: whether a requested gradient with respect to these bottoms is zero, as in Caffe's Backward,
            instead of an error. It is set for coordinates and weights that trained layers may compute.
        counts_ignored: for metrics, whether a label out of range that a different layer ignores counts as incorrect,
            with a warning. Other labels out of range are errors.
        sample: `sample(random, *bottoms)` returns random values for the last of these bottoms, for tests. It is
            set where random integers would be meaningless, as for boxes. Bottoms have `.shape`.
    """

    bottoms: tuple[int, ...]
    num_classes: Function | None = None
    ignore_label: Function | None = None
    gathers: bool = False
    ignores_gradient: bool = False
    counts_ignored: bool = False
    sample: Function | None = None

    def __post_init__(self) -> None:
        if (self.gathers and self.num_classes is None) or (self.num_classes is not None and not self.bottoms):
            raise ValueError("Indices with `gathers` need `num_classes`, and Indices with `num_classes` need `bottoms`")

    def positions(self, n: int) -> frozenset[int]:
        """Return the positions of these bottoms, counted from 0, in a layer with n bottoms."""
        return frozenset(i % n for i in self.bottoms if -n <= i < n)


@dataclass(frozen=True)
class Gradient:
    """The gradient of a layer type.

    Attributes:
        backward: the hand-written Backward rule (see `declaration`), or None if the type relies on autodiff.
        overrides_autodiff: whether nets use the rule instead of autodiff, because Caffe's gradient is not the
            derivative of forward.
        differentiable: False if Caffe has no backward pass for the type, so that it is an error to request a gradient.
        indices: the bottoms that hold labels or indices.
        exempt_from_force_backward: positions of bottoms that `force_backward` skips, such as the labels of a loss.
            Default: the bottoms of `indices`, or none if the type is not differentiable.
        deviation: a description of the difference between Caffe's gradient and the derivative, if forward stops
            gradients as Caffe does. Checks then compare the rule with autodiff only, not with finite differences.
            Default: "", which means no difference.
        stops_gradient: whether the backward pass does nothing, so that earlier layers get no gradient, although the
            tops may depend on the bottoms. It is set for layers that select or label, whose `backward` is then zero.
        overwrites_diffs: whether the backward pass of Caffe or the fork overwrites the diffs of the layer's blobs
            instead of adding to them. `pycaffe.Net.backward` then overwrites them, too; training always sums over
            passes.
    """

    backward: Function | None = None
    overrides_autodiff: bool = False
    differentiable: bool = True
    indices: Indices = Indices(())
    exempt_from_force_backward: tuple[int, ...] | None = None
    deviation: str = ""
    stops_gradient: bool = False
    overwrites_diffs: bool = False


@dataclass(frozen=True)
class ChannelAffine:
    """Functions for layers that compute y = factor * x + bias for each channel, so that they can be fused or folded.

    Attributes:
        applies: `applies(shapes, axis, channels)` returns whether a layer computes exactly this, where the
            `channels` channels are along `axis` of its bottom. `shapes` are the shapes of its blobs.
        factor_and_bias: `factor_and_bias(blobs)` returns the factor and the bias, (channels,) each, of a layer for
            which `applies` is true. They are NumPy arrays, without compilation, if the blobs are NumPy arrays, and JAX
            arrays otherwise.
    """

    applies: Callable[..., bool]
    factor_and_bias: Function


@dataclass(frozen=True)
class LayerTraits:
    """Properties of a layer type that the compiler and the tools use.

    They are believed: a property that is untrue gives wrong numbers without an error. `check_gradients` tests them.

    Attributes:
        elementwise: whether each element of the tops depends only on the elements of the bottoms at the same position,
            and not on the position, so that the order of the axes makes no difference. This implies `row_wise`.
        row_wise: whether each row (index along axis 0) of the tops depends only on the same row of the bottoms, and not
            on the number of rows. If this depends on the layer's settings, a function `row_wise()` that returns it.
        row_bottoms: the positions of the bottoms to which `row_wise` and `counts_rows` apply; a row of the tops may
            depend on all values of the bottoms that are not listed. Default: all bottoms.
        is_relu: `is_relu()` returns whether the layer computes exactly max(x, 0).
        channel_affine: a `ChannelAffine` for types that can compute factor * x + bias for each channel, such as Scale,
            or None for other types.
        depends_only_on_shapes: whether the tops depend only on the shapes of the bottoms, as in PriorBox.
        fold_scale_bias: a function for types whose tops along axis 1 are products with a weight, or None for other
            types. `fold_scale_bias(blobs, factor, bias)` returns the LayerParameter and the blobs of a layer that
            computes factor * top + bias, or None if the settings do not allow it. Factor and bias have shape
            (channels,) or ().
        is_identity: `is_identity()` returns whether every top equals the bottom.
        data_movement: the values of the bottoms that the tops hold unchanged: "all", "some", or "nothing" (the tops are
            computed).
        dtype_policy: the dtype in which the type computes in a bfloat16 net: "float32", "bottoms" (the dtype of the
            bottoms), or "products" (bfloat16 for products); see `layers.dtype_policy`.
        accepts_integers: whether every bottom may have an integer dtype, because values are only moved, or first cast
            to float32. Otherwise integers are an error, except in the bottoms of `Indices`.
        spatial_map: the position of the bottom's pixels in the top: the "same" (implied by `elementwise`), "windows"
            (each pixel of the top is computed from a window), "transposed" windows, "cropped", or "unknown".
        window: `window(bottom)` returns the `Window` if `spatial_map` is "windows" or "transposed". The bottom has
            `.shape`.
        receptive_window: a function for types whose top has the bottom's height and width. `receptive_window(ctx,
            bottom)` returns the `Window` of bottom pixels on which a top pixel depends, or None for the whole plane.
            Default: the same pixel if pixels keep their position or the layer only moves data, otherwise unknown.
        weight_axes: the number of axes of the first blob; for types with windows, with bottoms of four axes. Legacy
            weight files pad the shapes of all blobs to four axes, so this number is needed to restore the shape.
        blob_names: the names of the blobs in the order in which Caffe's files store them; a layer may lack some. Types
            with at most one blob need none. Weights are converted by it without the net's shapes.
        convert_stored: a function for types whose blobs files of older versions and forks store in another order or
            shape, or None for other types. `convert_stored(blobs)` takes the blobs of a file, of which some may be
            None, and returns them in the order and the shapes that the layer has, and a warning or None. If it names
            `shapes`, it gets these shapes.
        top_is_param: whether the top is the layer's first blob itself, with one memory, as in Parameter.
        pads_rows: whether the tops have the maximum number of rows, along the axis before the last. Padding rows come
            last and begin with a negative number. Outside of compiled code they are stripped, see `layers.row_padding`.
        counts_rows: whether the bottoms may have rows of padding, which are zeros after the first `ctx.num_rows` rows
            and leave the tops and the gradients unchanged. If this depends on the layer's settings, a function
            `counts_rows()`. Types with `row_wise` need no count.
        row_tops: for a type with `counts_rows`, the positions of the tops that have the bottoms' rows.
        takes_one_image: whether the layer takes a single image, so that training on several devices, with an image for
            each, computes the losses of several passes, see `NetConfig.joins_batches`.
        marks_detections: whether the top has a row for each class and each detection, of which solvers compute the
            average precision.
        takes_logits: whether the tops depend on the first bottom only through its softmax over the classes, so that the
            first bottom holds scores, not probabilities.
        label_axis: a function for types whose top may hold indices of classes, as in ArgMax, or None for other types.
            `label_axis()` returns the axis of the bottom along which the top holds indices, or None if the top also
            holds other values.
    """

    elementwise: bool = False
    row_wise: bool | Callable[..., bool] = False
    row_bottoms: tuple[int, ...] | None = None
    is_relu: Callable[..., bool] | None = None
    channel_affine: ChannelAffine | None = None
    depends_only_on_shapes: bool = False
    fold_scale_bias: Function | None = None
    is_identity: Callable[..., bool] | None = None
    data_movement: DataMovement = "nothing"
    dtype_policy: DtypePolicy = "float32"
    accepts_integers: bool = False
    spatial_map: SpatialMap = "unknown"
    window: Function | None = None
    receptive_window: Function | None = None
    weight_axes: int = 1
    blob_names: tuple[str, ...] = ()
    convert_stored: Callable[..., tuple[Sequence[Any], str | None]] | None = None
    top_is_param: bool = False
    pads_rows: bool = False
    counts_rows: bool | Callable[..., bool] = False
    row_tops: tuple[int, ...] = ()
    takes_one_image: bool = False
    marks_detections: bool = False
    takes_logits: bool = False
    label_axis: Callable[..., int | None] | None = None

    def __post_init__(self) -> None:
        literals = {"data_movement": DataMovement, "dtype_policy": DtypePolicy, "spatial_map": SpatialMap}
        for name, values in literals.items():
            if getattr(self, name) not in get_args(values):
                raise ValueError(f"{name} must be one of {get_args(values)}, not {getattr(self, name)!r}")

    @property
    def keeps_pixels(self) -> bool:
        """True if the bottom's pixels are at the same positions in the top."""
        return self.elementwise or self.spatial_map == "same"

    @property
    def is_copy(self) -> bool:
        """True if every top equals the bottom for all settings."""
        return self.elementwise and self.data_movement == "all"


@dataclass(frozen=True)
class LayerDocs:
    """Documentation of a layer type, in addition to the docstring of forward.

    Attributes:
        origin: the project that defined the type: "BVLC" (Caffe itself), or a fork.
        restrictions: sentences about settings and shapes that the type does not support.
        unsupported: the JAX transformations that the type does not support, with the reasons. Tests check that the
            other transformations in `TRANSFORMS` work.
    """

    origin: str = "BVLC"
    restrictions: str = ""
    unsupported: Mapping[Transform, str] = field(default_factory=lambda: MappingProxyType({}), hash=False)


@dataclass(frozen=True)
class LayerType:
    """The definition of a layer type, which `declaration.register` makes.

    Attributes:
        signature: the name, the numbers of bottoms and tops, and the settings.
        implementation: how layers of the type are computed: `Traced` (a function of JAX arrays), `HostFunction` (of
            NumPy arrays), `SourceInput` (read from a data source), `CallerInput` (passed by the caller), `PerLayer`
            (decided for each layer), or `Variants` (several types with one name).
        gradient: the backward pass.
        traits: properties that the compiler uses.
        docs: documentation of the type.
        settings: `settings(p)` returns the meaning of the layer's parameter message `p` as a frozen value, which
            `Context.settings` computes once for each layer. It may be a dataclass whose fields have defaults: layers
            then set them in `python_param { param_str: "..." }`. It is None if the settings are the message itself.
        check: `check(p)` raises a LayerError if settings are invalid. It is called once for each layer.
    """

    signature: Signature
    implementation: Implementation
    gradient: Gradient = Gradient()
    traits: LayerTraits = LayerTraits()
    docs: LayerDocs = LayerDocs()
    settings: Function | type | None = None
    check: Function | None = None

    @property
    def name(self) -> str:
        """Caffe's type name."""
        return self.signature.name

    @property
    def on_host(self) -> bool:
        """True if the layer runs on the host, outside of compiled code."""
        impl = self.implementation
        return isinstance(impl, HostFunction) or (isinstance(impl, PerLayer) and impl.on_host)

    @property
    def has_traced_form(self) -> bool:
        """True if a function that JAX traces replaces the layer's callback; see `HostFunction.traced`."""
        return isinstance(self.implementation, HostFunction) and self.implementation.traced is not None

    @property
    def is_input(self) -> bool:
        """True if the tops come from a data source or from the caller."""
        if isinstance(self.implementation, Variants):
            return all(variant.is_input for variant in self.implementation.types.values())
        return isinstance(self.implementation, SourceInput | CallerInput)

    @property
    def is_net_input(self) -> bool:
        """True if the tops are inputs of the net, which the caller passes to each call."""
        return isinstance(self.implementation, CallerInput) and not self.implementation.from_arrays

    @property
    def is_loss(self) -> bool:
        """True if the first top is a loss, by default or by the loss_weight that the type requires."""
        return self.signature.loss or self.signature.requires_loss_weight

    @property
    def is_metric(self) -> bool:
        """True if the type compares with labels and has no backward pass, as in Accuracy."""
        return bool(self.gradient.indices.bottoms) and not self.gradient.differentiable

    @property
    def params(self) -> Function | None:
        """The function that declares the blobs of a layer, see `Traced`, or None if layers have no blobs."""
        return self.implementation.params if isinstance(self.implementation, Traced | HostFunction) else None

    @property
    def blob_orders(self) -> set[tuple[str, ...]]:
        """The possible orders of a layer's blobs in Caffe's files: `LayerTraits.blob_names` of the type's variants."""
        variants = self.implementation.types.values() if isinstance(self.implementation, Variants) else (self,)
        return {variant.traits.blob_names for variant in variants}

    @property
    def instance(self) -> Any:
        """The user's object that computes the layer, as in Python layers, or None."""
        return getattr(self.implementation, "instance", None)

    @property
    def user_tops(self) -> Sequence[Any]:
        """The blobs that `instance` writes its tops to, or nothing if it is not a Python layer on the host."""
        return self.implementation.user_tops if isinstance(self.implementation, HostFunction | SourceInput) else ()

    @property
    def position(self) -> Position | None:
        """The interface to save and restore what the layer counts from pass to pass, or None if it has none."""
        return self.implementation.position if isinstance(self.implementation, HostFunction | SourceInput) else None

    @property
    def has_backward(self) -> bool:
        """True if the type has a gradient, by its rule or by autodiff. Host layers have no autodiff."""
        return self.gradient.differentiable and (self.gradient.backward is not None or not self.on_host)

    @property
    def stops_gradients(self) -> bool:
        """True if earlier layers get no gradient through layers of this type, for example because tops are padded."""
        return self.gradient.stops_gradient or self.traits.pads_rows

    def takes_gradient(self, bottom_index: int, n_bottoms: int) -> bool:
        """Return whether the gradient with respect to a bottom (its index) of a layer can be nonzero."""
        indices = self.gradient.indices
        return not (self.stops_gradients or (indices.ignores_gradient and bottom_index in indices.positions(n_bottoms)))

    @property
    def unsupported(self) -> Mapping[Transform, str]:
        """The JAX transformations that the type does not support, with reasons."""
        # layers that only write are left out of traced code
        if not self.on_host or self.signature.tops == 0 or self.has_traced_form:
            return self.docs.unsupported
        bottoms = self.signature.bottoms
        num_bottoms = bottoms if isinstance(bottoms, int) else bottoms[0]
        all_are_indices = len(self.gradient.indices.positions(num_bottoms)) == num_bottoms > 0
        has_diffs = self.has_backward and not self.stops_gradients and not all_are_indices
        transforms = (*(NO_DERIVATIVES_OF_CALLBACKS if has_diffs else ()), *NOT_IN_CALLBACKS)
        return MappingProxyType({**self.docs.unsupported, **dict.fromkeys(transforms, IS_CALLBACK)})


def _is_in_range(n: int, count: Count) -> bool:
    low, high = (count, count) if isinstance(count, int) else count
    return low <= n and (high is None or n <= high)


def _format_count(count: Count, noun: str) -> str:
    if isinstance(count, int):
        return f"exactly {format_count(count, noun)}"
    low, high = count
    return f"at least {format_count(low, noun)}" if high is None else f"{low} to {high} {noun}s"
