"""What a layer type is, and the registry of types by Caffe's type name.

A type is a forward function and the few facts a net needs to wire it up:

    @register("InnerProduct", param="inner_product_param")
    def inner_product(ctx, blobs, x): ...          # arrays in, top (or tuple of tops) out

    @inner_product.blobs
    def _(ctx, x): ...                             # the learnable blobs, from the bottoms' shapes

    @inner_product.backward
    def _(ctx, blobs, x, *, y, dy): ...            # Caffe's Backward, by hand

`blobs` is passed only to types that declare blobs. A backward rule takes forward's arguments, what forward
returned (`y`) and the tops' diffs (`dy`), and returns what `jax.vjp` of forward would: one gradient for each
argument after `ctx`, None for zero. With one top, `y` and `dy` are arrays, else tuples.

Top shapes are not declared anywhere: they come from evaluating forward abstractly. Other packages add types
with the same decorator, in a module named by an entry point of the group `caffejax.layers`.
"""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ..errors import GraphError, did_you_mean
from .context import Blob, Context, Position, Shape, Source
from .precision import Floats
from .questions import ON_HOST, QUESTIONS, Question

Count = int | tuple[int, int | None]  # exactly n, or (at least, at most or None)

SAME_AS_BOTTOMS = "same as bottoms"

_PACKAGE = f"{__name__.partition('.')[0]}."


@dataclass
class LayerType:
    """A registered type. See the module's text for the three functions, `register` for most of the rest.

    Attributes:
        specialise: for a type that a layer's own parameters settle: what makes the type of that one layer.
        instance: then, the object of the user's that runs the layer.
        position: then, how that object says where in its data it is, if it can.
        single: that forward and rule compute in float32, whatever they are given.
        cannot: what JAX does with functions but not with this type, of `QUESTIONS`, each with the reason in words.
            For a host type that is everything.
    """

    name: str
    forward: Callable[..., Any] | None = None
    open_source: Callable[[Context], Source] | None = None
    finish: Callable[..., Any] | None = None
    input_shapes: Callable[[Context], list[Shape]] | None = None
    param: str | None = None
    bottoms: Count = 1
    tops: Count | str = 1
    in_place: bool = True
    loss: bool = False
    stateful: bool = False
    index_bottoms: tuple[int, ...] = ()
    unforced_bottoms: tuple[int, ...] = ()
    prefer_rule: bool = False
    not_derivative: str = ""
    differentiable: bool = True
    restrictions: str = ""
    fork_settings: tuple[str, ...] = ()
    host: bool = False
    reads_files: bool = False
    ragged: bool = False
    row_wise: bool = False
    elementwise: bool = False
    takes_integers: bool = False
    floats: Floats = "float32"
    single: bool = False
    cannot: Mapping[Question, str] = field(default_factory=dict)
    specialise: Callable[[Context], LayerType] | None = None
    instance: Any = None
    position: Position | None = None
    declare_blobs: Callable[..., list[Blob]] | None = field(default=None, repr=False)
    rule: Callable[..., Any] | None = field(default=None, repr=False)
    declare_tops: Callable[..., list[Shape]] | None = field(default=None, repr=False)
    joint: Callable[..., Any] | None = field(default=None, repr=False)
    count_indexed: Callable[..., int] | None = field(default=None, repr=False)
    factor_and_bias: Callable[..., Any] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.cannot = MappingProxyType(dict.fromkeys(QUESTIONS, ON_HOST) if self.host else dict(self.cannot))

    def __reduce__(self) -> Any:
        return layer_type, (self.name,)

    def blobs(self, declare: Callable[..., list[Blob]]) -> Callable[..., list[Blob]]:
        """Decorator: `declare(ctx, *bottoms)` lists the blobs; bottoms have `.shape` and `.dtype`."""
        self.declare_blobs = declare
        return declare

    def top_shapes(self, declare: Callable[..., list[Shape]]) -> Callable[..., list[Shape]]:
        """Decorator, for host types: `declare(ctx, *bottoms)` gives the largest shapes of the tops."""
        self.declare_tops = declare
        return declare

    def indexed(self, count: Callable[..., int]) -> Callable[..., int]:
        """Decorator: `count(ctx, *bottoms)` is how many things the type's one index bottom picks from.

        Bottoms have `.shape`. An index that is none of 0 .. count - 1 is an error, of which forward makes NaN.
        """
        self.count_indexed = count
        return count

    def backward(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: the hand-written Backward."""
        self.rule = rule
        return rule

    @property
    def has_backward(self) -> bool:
        """Whether a gradient can pass: by the rule, or by autodiff, which a host layer does not have."""
        return self.differentiable and (self.rule is not None or not self.host)

    @property
    def built_in(self) -> bool:
        """Whether it is caffejax that computes, and not what a user or another package has written."""
        own = self.forward is not None and self.forward.__module__.startswith(_PACKAGE)
        return own and self.instance is None

    @property
    def shared(self) -> bool:
        """Whether layers that differ only in their names compute the same. Other packages' types may look at names."""
        return self.built_in and not (self.host or self.reads_files)

    def joined(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: a fast way to compute a layer and some that follow in place on its only top, in one go.

        `run(ctx, blobs, bottom, followers)` returns how many of the followers it took in, at least 1, and what
        forward returns; or None where all have to run one by one.
        """
        self.joint = run
        return run

    def by_channel(self, find: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: `find(ctx, blobs, axis, channels)`, of a type that may be no more than y = factor * x + bias.

        Returns factor and bias, both (channels,) along that axis of the only bottom; None if the layer does more.
        """
        self.factor_and_bias = find
        return find

    def count_problems(self, n_bottoms: int, n_tops: int) -> Iterator[str]:
        """What is wrong with these numbers of bottoms and tops."""
        if not _fits(n_bottoms, self.bottoms):
            yield f"takes {_words(self.bottoms, 'bottom')}, but {n_bottoms} given"
        tops = n_bottoms if isinstance(self.tops, str) else self.tops
        if not _fits(n_tops, tops) and not (self.loss and n_tops == 0):
            yield f"produces {_words(tops, 'top')}, but {n_tops} given"


@dataclass(frozen=True)
class Follower:
    """A layer that works in place on what the one before it leaves."""

    ctx: Context
    blobs: tuple[Any, ...]

    @property
    def name(self) -> str:
        """Caffe's name of its type."""
        return self.ctx.type.name

    def by_channel(self, axis: int, channels: int) -> tuple[Any, Any] | None:
        """Factor and bias of each channel, if the layer is no more than that; see `LayerType.by_channel`."""
        find = self.ctx.type.factor_and_bias
        return None if find is None else find(self.ctx, self.blobs, axis, channels)


def _fits(n: int, count: Count) -> bool:
    low, high = (count, count) if isinstance(count, int) else count
    return low <= n and (high is None or n <= high)


def _words(count: Count, noun: str) -> str:
    if isinstance(count, int):
        return f"exactly {count} {noun}{'' if count == 1 else 's'}"
    low, high = count
    return f"at least {low} {noun}(s)" if high is None else f"{low} to {high} {noun}s"


_types: dict[str, LayerType] = {}


def _add(layer_type: LayerType) -> LayerType:
    if layer_type.name in _types:
        raise ValueError(f"layer type '{layer_type.name}' is registered already")
    _types[layer_type.name] = layer_type
    return layer_type


def register(
    name: str,
    *,
    bottoms: Count = 1,
    tops: Count | str = 1,
    param: str | None = None,
    in_place: bool = True,
    loss: bool = False,
    stateful: bool = False,
    index_bottoms: tuple[int, ...] = (),
    unforced_bottoms: tuple[int, ...] = (),
    prefer_rule: bool = False,
    not_derivative: str = "",
    differentiable: bool = True,
    restrictions: str = "",
    fork_settings: tuple[str, ...] = (),
    host: bool = False,
    reads_files: bool = False,
    ragged: bool = False,
    row_wise: bool = False,
    elementwise: bool = False,
    takes_integers: bool = False,
    floats: Floats = "float32",
    cannot: Mapping[Question, str] = MappingProxyType({}),
) -> Callable[[Callable[..., Any]], LayerType]:
    """Registers a forward function `forward(ctx, [blobs,] *bottoms)` as a layer type.

    Args:
        name: Caffe's type name.
        bottoms: how many bottoms: a number, or (least, most) with None for no limit.
        tops: how many tops, likewise, or `SAME_AS_BOTTOMS`.
        param: the LayerParameter field with the type's own parameters.
        in_place: False where a top may not carry a bottom's name.
        loss: the first top has loss_weight 1 unless told otherwise, and is made if not named.
        stateful: forward returns `(tops, new values of the blobs that are not learnable)`.
        index_bottoms: bottoms holding labels or indices; no gradient can be asked into them. -1 is the last.
        unforced_bottoms: those of them that `force_backward` leaves alone, as it does a loss's labels.
        prefer_rule: use the backward rule rather than autodiff: where Caffe's gradient is not the derivative.
        not_derivative: where forward itself stops gradients that exist, as Caffe does, in words; checks then take
            rule and autodiff agreeing for enough.
        differentiable: False where Caffe has no backward pass; asking for one is an error.
        restrictions: what the type does not do, for the table of layers.
        host: forward and rule work on NumPy arrays, outside what is compiled, because they cannot be traced.
        reads_files: forward looks into files that the layer names; what they hold is constant in each net.
        ragged: of a host type, that the data says how many rows the tops have.
        row_wise: each row (index along axis 0) of the tops depends on the same row of the bottoms only,
            provided that `axis`, where the type has one, is not the first.
        elementwise: each number of the tops depends on the number at the same place of the bottoms only, so that the
            order of the axes makes no difference; implies row_wise.
        takes_integers: that integers will do for every bottom, as numbers are only moved, or made float32 first; of a
            type of caffejax's own others are refused but for `index_bottoms`.
        floats: how it computes in a net of bfloat16: in "float32", in its "bottoms"' type, or "products" in bfloat16.
        fork_settings: settings of forks that it follows; others that are set are refused.
        cannot: what JAX does not do with it, of `QUESTIONS`, each with the reason in words; tests ask all the rest.

    Raises:
        ValueError: if the name is taken.
    """

    def decorate(forward: Callable[..., Any]) -> LayerType:
        return _add(
            LayerType(
                name=name,
                forward=forward,
                bottoms=bottoms,
                tops=tops,
                param=param,
                in_place=in_place,
                loss=loss,
                stateful=stateful,
                index_bottoms=index_bottoms,
                unforced_bottoms=unforced_bottoms,
                prefer_rule=prefer_rule,
                not_derivative=not_derivative,
                differentiable=differentiable,
                restrictions=restrictions,
                fork_settings=fork_settings,
                host=host,
                reads_files=reads_files,
                ragged=ragged,
                row_wise=row_wise or elementwise,
                elementwise=elementwise,
                takes_integers=takes_integers,
                floats=floats,
                cannot=cannot,
            )
        )

    return decorate


def register_source(
    name: str, *, tops: Count, param: str, finish: Callable[..., Any] | None = None, restrictions: str = ""
) -> Callable[[Callable[[Context], Source]], LayerType]:
    """Registers `open(ctx) -> Source` as a type without bottoms that reads data on the host.

    `finish(ctx, *arrays) -> tops`, which is traced, is what is left to do with the source's arrays on the device.
    """

    def decorate(open_source: Callable[[Context], Source]) -> LayerType:
        return _add(
            LayerType(
                name=name,
                open_source=open_source,
                finish=finish,
                bottoms=0,
                tops=tops,
                param=param,
                restrictions=restrictions,
            )
        )

    return decorate


def register_input(name: str, *, tops: Count, param: str) -> Callable[[Callable[[Context], list[Shape]]], LayerType]:
    """Registers `shapes(ctx)` as a type whose tops the caller feeds."""

    def decorate(shapes: Callable[[Context], list[Shape]]) -> LayerType:
        return _add(LayerType(name=name, input_shapes=shapes, bottoms=0, tops=tops, param=param))

    return decorate


def register_specialised(
    name: str, *, bottoms: Count, tops: Count, param: str
) -> Callable[[Callable[[Context], LayerType]], LayerType]:
    """Registers `specialise(ctx) -> LayerType` as a type that is settled by each layer's own parameters.

    It gives `ctx.type` with more filled in. It is called once for each layer of each graph, so what it makes may
    belong to that layer.
    """

    def decorate(specialise: Callable[[Context], LayerType]) -> LayerType:
        return _add(LayerType(name=name, specialise=specialise, bottoms=bottoms, tops=tops, param=param))

    return decorate


@functools.cache
def _load_plugins() -> None:
    for entry in importlib.metadata.entry_points(group="caffejax.layers"):
        entry.load()


def layer_types() -> dict[str, LayerType]:
    """All types by name, in alphabetical order."""
    _load_plugins()
    return dict(sorted(_types.items()))


def layer_type(name: str) -> LayerType:
    """The type of that name.

    Raises:
        GraphError: if there is none; the message names the nearest.
    """
    if name not in _types:
        _load_plugins()
    if name not in _types:
        raise GraphError(f"unknown layer type '{name}'{did_you_mean(name, _types)}")
    return _types[name]
