"""What a layer type is: four frozen parts, each stated once, where the type is registered.

    def unit_rows(ctx, blobs, x): ...                   # arrays in, top (or tuple of tops) out
    def unit_rows_params(ctx, x): ...                   # the params that it owns, from the bottoms' shapes
    def unit_rows_backward(ctx, blobs, x, *, y, dy): ...  # Caffe's Backward, by hand

    register(
        LayerType(
            Signature("UnitRows", param="unit_rows_param"),
            Traced(unit_rows, params=unit_rows_params),
            Gradient(unit_rows_backward),
            Facts(row_wise=True),
        )
    )

Forward takes the layer's `Context`, its blobs as one tuple if it declares params, and its bottoms. A backward rule
takes the same, what forward returned (`y`) and the tops' diffs (`dy`), and returns what `jax.vjp` of forward would: one
gradient for each argument after `ctx`, None for zero. With one top, `y` and `dy` are arrays, else tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from ..sizes import counted
from .label import UNLABELLED, Label
from .questions import ON_HOST, QUESTIONS, Question
from .runs import Fed, Function, Fusion, OnHost, PerLayer, Reads, Traced, Variants
from .source import Position

__all__ = [
    "SAME_AS_BOTTOMS",
    "ByChannel",
    "DtypePolicy",
    "Facts",
    "Fed",
    "Fusion",
    "Gradient",
    "Indices",
    "LayerType",
    "Moves",
    "OnHost",
    "PerLayer",
    "Pixels",
    "Reads",
    "Signature",
    "Traced",
    "Variants",
]

Count = int | tuple[int, int | None]  # exactly n, or (at least, at most or None)
DtypePolicy = Literal["float32", "bottoms", "products"]
Moves = Literal["nothing", "whole", "parts"]
Pixels = Literal["same", "windows", "transposed", "cropped", "unknown"]

SAME_AS_BOTTOMS = "same as bottoms"


@dataclass(frozen=True)
class Signature:
    """How a type stands in a prototxt.

    Attributes:
        name: Caffe's type name.
        bottoms: how many bottoms: a number, or (least, most) with None for no limit.
        tops: how many tops, likewise, or `SAME_AS_BOTTOMS`.
        param: the LayerParameter field with the type's own parameters.
        in_place: False where a top may not carry a bottom's name.
        loss: the first top has loss_weight 1 unless told otherwise, and is made if not named.
        weighted: a loss that has to say its loss_weight: in its fork it would weigh nothing, in others it is refused.
        fork_settings: settings of forks that it follows; others that are set are refused.
        aliases: other names that forks have for it.
    """

    name: str
    bottoms: Count = 1
    tops: Count | str = 1
    param: str | None = None
    in_place: bool = True
    loss: bool = False
    weighted: bool = False
    fork_settings: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    def count_problems(self, n_bottoms: int, n_tops: int) -> Iterator[str]:
        """Yield what is wrong with these numbers of bottoms and tops."""
        if not _fits(n_bottoms, self.bottoms):
            yield f"takes {_words(self.bottoms, 'bottom')}, but {n_bottoms} given"
        tops = n_bottoms if isinstance(self.tops, str) else self.tops
        if not _fits(n_tops, tops) and not (self.loss and n_tops == 0):
            yield f"produces {_words(tops, 'top')}, but {n_tops} given"


@dataclass(frozen=True)
class Indices:
    """Bottoms that hold labels or indices; no gradient can be asked into them.

    Attributes:
        bottoms: their numbers; -1 is the last.
        classes: `classes(ctx, *bottoms)` is how many things the first of them numbers, 0 .. classes - 1; None where
            it numbers nothing, or the shapes do not say. Bottoms have `.shape`.
        ignored: `ignored(ctx)` is a number that is none of them and counts for nothing, or None.
        picks: whether the layer picks things by these numbers: one out of range is an error, of which forward makes
            NaN. Else they are classes, which only the data can hold.
        quiet: whether none is made of a gradient that is asked into them, as Caffe's Backward does, rather than an
            error: of coordinates and weights, which may come from layers that learn.
        drawn: `drawn(ctx, random, *bottoms)` draws random ones for the last of them, where any whole numbers would
            mean nothing, such as boxes. Bottoms have `.shape`.
    """

    bottoms: tuple[int, ...]
    classes: Function | None = None
    ignored: Function | None = None
    picks: bool = False
    quiet: bool = False
    drawn: Function | None = None

    def __post_init__(self) -> None:
        if (self.picks and self.classes is None) or (self.classes is not None and not self.bottoms):
            raise ValueError("Indices that number classes need bottoms, and those that pick need classes")

    def of(self, n: int) -> frozenset[int]:
        """Return their numbers, counted from 0, in a layer of n bottoms."""
        return frozenset(i % n for i in self.bottoms if -n <= i < n)


@dataclass(frozen=True)
class Gradient:
    """How a type's gradient is made, and where it stops.

    Attributes:
        rule: the hand-written Backward; None where there is autodiff alone.
        preferred: use the rule rather than autodiff: where Caffe's gradient is not the derivative.
        exists: False where Caffe has no backward pass; asking for one is an error.
        indices: the bottoms that hold labels or indices.
        unforced: those of them that `force_backward` leaves alone, such as a loss's labels.
        not_derivative: where forward itself stops gradients that exist, as Caffe does, in words; checks then take
            rule and autodiff agreeing for enough.
        stops: where Caffe's backward pass does nothing: what lies above needs no gradient.
    """

    rule: Function | None = None
    preferred: bool = False
    exists: bool = True
    indices: Indices = Indices(())
    unforced: tuple[int, ...] = ()
    not_derivative: str = ""
    stops: bool = False


@dataclass(frozen=True)
class ByChannel:
    """A layer that may be no more than y = factor * x + bias.

    Attributes:
        holds: `holds(ctx, shapes, axis, channels)`: whether it is just that along an axis of its bottom with so many
            channels; `shapes` are its blobs'.
        factor_and_bias: `factor_and_bias(ctx, blobs)`: then these two, (channels,) each: NumPy arrays if the blobs
            are, which takes no compiling, else JAX's.
    """

    holds: Callable[..., bool]
    factor_and_bias: Function


@dataclass(frozen=True)
class Facts:
    """What else there is to know of a type.

    Attributes:
        elementwise: each number of the tops depends on the number at the same place of the bottoms only, so that the
            order of the axes makes no difference.
        row_wise: whether each row (index along axis 0) of the tops depends on the same row of the bottoms only; a
            function of the context where the parameters decide. What is elementwise is row-wise.
        rows_of: the bottoms whose rows these are; all unless given. Of the others each row depends on the whole.
        relu: `relu(ctx)`: whether it is max(x, 0) and no more.
        by_channel: for what may be a factor and a bias for each channel.
        by_shapes: whether the tops depend on the bottoms' shapes only, and on nothing that they hold.
        takes: `takes(ctx, blobs, factor, bias)`, of a type whose tops along axis 1 are products with its weight: the
            same parameters and blobs with these two, (channels,) or () each, taken into them.
        identity: `identity(ctx)`: whether every top is the bottom itself; always so where it moves the "whole".
        moves: whether all of its tops hold the bottoms' numbers: the "whole" of them, or "parts"; or "nothing".
        dtypes: how it computes in a net of bfloat16: in "float32", in its "bottoms"' type, or "products" in bfloat16;
            see `layers.dtypes`.
        integers: integers will do for every bottom, as numbers are only moved, or made float32 first; others are
            refused but for indices.
        pixels: where the bottom's pixels lie in the top: at the "same" places, as in all that is elementwise; in
            "windows", each a pixel of the top; "transposed", the other way round; "cropped"; or "unknown".
        window: `window(ctx, bottom)` is that `Window`, where there is one; the bottom has `.shape`.
        sees: `sees(ctx, bottom)` is the `Window` of the bottom's pixels that a pixel of a top as large sees, None if it
            sees all of them. Unless given it is the own pixel of what keeps pixels or only moves numbers; of others
            it cannot be said.
        label: what drawings say of such a layer.
        weight_axes: how many axes its first param has; old weight files give all blobs four.
        restrictions: what the type does not do, for the table of layers.
        cannot: what JAX does not do with it, of `QUESTIONS`, each with the reason in words; tests ask all the rest.
        origin: whose type it is: BVLC's, or a fork's.
        padded: the tops have as many rows (along the axis before the last) as there can be. Rows of padding come last
            and begin with a negative number, where others have the number of an image. Outside of what is compiled,
            tops have as many rows as there are, see `layers.rows`.
    """

    elementwise: bool = False
    row_wise: bool | Callable[..., bool] = False
    rows_of: tuple[int, ...] | None = None
    relu: Callable[..., bool] | None = None
    by_channel: ByChannel | None = None
    by_shapes: bool = False
    takes: Function | None = None
    identity: Callable[..., bool] | None = None
    moves: Moves = "nothing"
    dtypes: DtypePolicy = "float32"
    integers: bool = False
    pixels: Pixels = "unknown"
    window: Function | None = None
    sees: Function | None = None
    label: Label = UNLABELLED
    weight_axes: int = 1
    restrictions: str = ""
    cannot: Mapping[Question, str] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    origin: str = "BVLC"
    padded: bool = False

    @property
    def keeps_pixels(self) -> bool:
        """Whether the bottom's pixels lie at the same places of the top."""
        return self.elementwise or self.pixels == "same"

    @property
    def copies(self) -> bool:
        """Whether every top is the bottom itself."""
        return self.elementwise and self.moves == "whole"


@dataclass(frozen=True)
class LayerType:
    """A layer type; see the module's text."""

    signature: Signature
    runs: Traced | OnHost | Reads | Fed | PerLayer | Variants
    gradient: Gradient = Gradient()
    facts: Facts = Facts()

    @property
    def name(self) -> str:
        """Caffe's type name."""
        return self.signature.name

    @property
    def on_host(self) -> bool:
        """Whether it runs outside of what is compiled."""
        return isinstance(self.runs, OnHost) or (isinstance(self.runs, PerLayer) and self.runs.on_host)

    @property
    def is_fed(self) -> bool:
        """Whether its tops come from outside: from a source, or from the caller."""
        return isinstance(self.runs, Reads | Fed)

    @property
    def params(self) -> Function | None:
        """What declares the params that a layer owns."""
        return self.runs.params if isinstance(self.runs, Traced | OnHost) else None

    @property
    def fusion(self) -> Fusion | None:
        """How it is fused with layers that follow."""
        return self.runs.fusion if isinstance(self.runs, Traced) else None

    @property
    def instance(self) -> Any:
        """The object of the user's that runs the layer, if it is one."""
        return getattr(self.runs, "instance", None)

    @property
    def position(self) -> Position | None:
        """How that object says where in its data it is, if it can."""
        return self.runs.position if isinstance(self.runs, OnHost | Reads) else None

    @property
    def has_backward(self) -> bool:
        """Whether a gradient can pass: by the rule, or by autodiff, which a host layer does not have."""
        return self.gradient.exists and (self.gradient.rule is not None or not self.on_host)

    @property
    def stops_gradients(self) -> bool:
        """Whether none passes it: none does where tops are padded, either."""
        return self.gradient.stops or self.facts.padded

    def takes_gradient(self, bottom: int, bottoms: int) -> bool:
        """Return whether a gradient asked into a bottom, of so many, is more than none."""
        indices = self.gradient.indices
        return not (self.stops_gradients or (indices.quiet and bottom in indices.of(bottoms)))

    @property
    def cannot(self) -> Mapping[Question, str]:
        """What JAX does not do with it, with reasons; of a host layer that is everything."""
        return MappingProxyType(dict.fromkeys(QUESTIONS, ON_HOST)) if self.on_host else self.facts.cannot


def _fits(n: int, count: Count) -> bool:
    low, high = (count, count) if isinstance(count, int) else count
    return low <= n and (high is None or n <= high)


def _words(count: Count, noun: str) -> str:
    if isinstance(count, int):
        return f"exactly {counted(count, noun)}"
    low, high = count
    return f"at least {counted(low, noun)}" if high is None else f"{low} to {high} {noun}s"
