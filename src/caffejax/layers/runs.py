"""How a layer type runs: traced, on the host, read from a source, fed, as each layer decides, or as its fork does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .source import Look, Position

Function = Callable[..., Any]


@dataclass(frozen=True)
class Fusion:
    """A faster way to compute a layer together with some that follow in place on its only top.

    Attributes:
        fusible: `fusible(ctx, bottom, epilogues)` is how many of the epilogues it can be fused with; all have shapes
            only.
        run: `run(ctx, blobs, bottom, epilogues)`, given just those, returns what forward does.
    """

    fusible: Callable[..., int]
    run: Function


@dataclass(frozen=True)
class Traced:
    """Runs as a function of JAX arrays, compiled with the rest of the net. Tops' shapes come from evaluating it.

    Attributes:
        forward: `forward(ctx, [blobs,] *bottoms)`.
        params: `params(ctx, *bottoms)` lists a `ParamSpec` for each blob that the layer owns; bottoms have `.shape`
            and `.dtype`. None if it owns none.
        stateful: forward returns `(tops, new values of the blobs that are not learnable)`.
        fusion: how it is fused with layers that follow, if it can be.
        instance: the object of the user's that computes, if it is one.
        host_forward: the same as `forward` on NumPy arrays, which gives NumPy arrays: for inference on a CPU, where it
            spares compiling. None where there is no such function.
        top_shapes: `top_shapes(ctx, *bottoms)` gives the tops' shapes without evaluating forward, which takes longer;
            or None where forward has to be evaluated, as it may refuse what it is given. Bottoms have `.shape`.
    """

    forward: Function
    params: Function | None = None
    stateful: bool = False
    fusion: Fusion | None = None
    instance: Any = None
    host_forward: Function | None = None
    top_shapes: Function | None = None


@dataclass(frozen=True)
class OnHost:
    """Runs on NumPy arrays, outside of what is compiled, because it cannot be traced; so does its rule.

    Attributes:
        forward: `forward(ctx, [blobs,] *bottoms)`.
        top_shapes: `top_shapes(ctx, *bottoms)` gives the largest shapes of the tops.
        params: as for `Traced`.
        ragged: whether the data says how many rows the tops have.
        in_float32: whether it computes in float32, whatever it is given.
        instance: the object of the user's that computes, if it is one.
        position: how that says where in its data it is, if it can.
    """

    forward: Function
    top_shapes: Function
    params: Function | None = None
    ragged: bool = False
    in_float32: bool = False
    instance: Any = None
    position: Position | None = None


@dataclass(frozen=True)
class Reads:
    """Reads its tops from a source.

    Attributes:
        look: `look(site)` is a cheap look at the source, made once, when the graph is built.
        open: `open(site, tops)` opens it, given the tops that were seen.
        instance, position: as for `OnHost`.
    """

    look: Callable[..., Look]
    open: Function
    instance: Any = None
    position: Position | None = None


@dataclass(frozen=True)
class Fed:
    """Is fed its tops by the caller.

    Attributes:
        shapes: `shapes(ctx)` lists the tops' shapes.
        from_arrays: whether arrays are set once, of which it takes the next batch each time; else it is an input of
            the net.
    """

    shapes: Function
    from_arrays: bool = False


@dataclass(frozen=True)
class PerLayer:
    """Is settled by each layer's own parameters, or has something of its own, such as a file.

    Attributes:
        make: `make(ctx, site)` gives the type of one layer: `ctx.type` with another way to run. It is called once for
            each layer of each graph.
        on_host: whether what it gives is known to run on the host.
    """

    make: Function
    on_host: bool = False


class Company(NamedTuple):
    """What stands around a layer.

    Attributes:
        shapes: those of its bottoms, None where unknown.
        layers: the net's LayerParameters.
        beside: those of them that read its first bottom, too.
    """

    shapes: tuple[tuple[int, ...] | None, ...]
    layers: tuple[Any, ...]
    beside: tuple[Any, ...]


@dataclass(frozen=True)
class Variants:
    """Is of several types that forks call by one name; a layer's fields and blobs say which.

    Attributes:
        choose: `choose(layer)` gives the name of the variant that a LayerParameter is of.
        types: LayerTypes of the same name, by names of variants; what the table of layers calls them.
        told_apart: how, in words.
        settle: `settle(layer, company)` returns the LayerParameter with what its `Company` says of it in its own
            fields, where these leave it open; None if they never do.
    """

    choose: Callable[[Any], str]
    types: Mapping[str, Any] = field(hash=False)
    told_apart: str
    settle: Callable[[Any, Company], Any] | None = None
