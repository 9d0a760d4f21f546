"""The ways in which a layer type is implemented.

| class | the tops of a layer are |
|---|---|
| `Traced` | computed by a function of JAX arrays, which is compiled with the rest of the net |
| `HostFunction` | computed by a function of NumPy arrays, which is called between or from compiled parts of the net |
| `SourceInput` | read from a data source |
| `CallerInput` | passed by the caller |
| `PerLayer` | made in one of the ways above, which is chosen for each layer |
| `Variants` | made by one of several types, because forks use one name for different types |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .data_source import Position, SourceSpec

Function = Callable[..., Any]


@dataclass(frozen=True)
class TopFiller:
    """Functions that fill tops where blobs outlive a pass and scripts write to them, as in Caffe's Python interface.

    Attributes:
        is_refilled: `is_refilled()` returns, for each top, whether each forward pass fills it. Other tops are filled
            once, when the net is made, and then keep what scripts write.
        fill: `fill(i, shape)` returns the values of top i, float32 of the given shape, which a script may have
            changed.
    """

    is_refilled: Function
    fill: Function


@dataclass(frozen=True)
class Traced:
    """A function of JAX arrays, compiled with the rest of the net. The shapes of the tops are evaluated abstractly.

    Attributes:
        forward: `forward([params,] *bottoms)` returns the top, or a tuple of tops.
        params: `params(*bottoms)` returns a list with a `ParamSpec` for each blob of the layer; bottoms have
            `.shape` and `.dtype`. It is None if the layer has no blobs.
        stateful: whether forward returns `(tops, state)`, where the state is the new values of the blobs that are not
            learnable.
        count_fusible: `count_fusible(bottom, epilogues)` returns how many of the following layers, which are passed as
            `Epilogue`s and work in place on the only top, can be computed in one step with the layer, which is faster.
            The bottom and the blobs have no values, only `.shape`. It is None if no layer can be fused.
        fused: `fused([params,] bottom, epilogues)` computes the layer and all these epilogues, and returns a result of
            the same form as `forward`.
        instance: the user's object that computes the layer, or None.
        filler: for a layer that fills its tops, how it does so where blobs outlive a pass, or None.
        top_shapes: `top_shapes(*bottoms)` returns the tops' shapes faster than evaluating forward. It returns None
            where forward must be evaluated, because forward may raise an error. Bottoms have `.shape`.
    """

    forward: Function
    params: Function | None = None
    stateful: bool = False
    count_fusible: Callable[..., int] | None = None
    fused: Function | None = None
    instance: Any = None
    top_shapes: Function | None = None
    filler: TopFiller | None = None


@dataclass(frozen=True)
class OutputFiles:
    """The files that a layer writes.

    Attributes:
        pattern: their path, in which a `*` or the name of a list stands for several names.
        folder: their folder.
        creates_folder: whether the layer creates the folder if it is missing.
    """

    pattern: str
    folder: Path
    creates_folder: bool = False


def _missing_top_shapes(*bottoms: Any) -> Any:
    raise TypeError("a layer type on the host needs a function `top_shapes`")


@dataclass(frozen=True)
class HostFunction:
    """A function of NumPy arrays that cannot be traced.

    The function and its backward rule are called outside of compiled code. In code that JAX traces they are callbacks;
    layers without tops are left out there.

    Attributes:
        forward: `forward([params,] *bottoms)` returns the top, or a tuple of tops.
        top_shapes: `top_shapes(*bottoms)` returns the largest possible shapes of the tops.
        params: see `Traced`.
        ragged_axis: the axis of the rows of the tops, if their number depends on the data; otherwise None. In code
            that JAX traces the tops have the largest possible number of rows, see `PaddedRows`.
        computes_in_float32: whether the function computes in float32, for bottoms of any dtype.
        instance: the user's object that computes the layer, or None.
        user_tops: the blobs that this object writes its tops to. Its passes find there what scripts wrote to the tops.
        position: the interface to save and restore all that the layer counts from pass to pass, or None if it counts
            nothing.
        output: the files that the function writes, or None.
        traced: a function that replaces the callback of a layer with a `ragged_axis`, or None. `traced(*bottoms)`
            returns the tops with the largest possible number of rows, valid rows before zeros, and the number of valid
            rows. Bottoms may be `PaddedRows`. Where forward refuses values, the tops are NaN; a solver on one device
            then runs forward, which raises the error.
        may_reshape: whether forward itself, as a user's method may do, gives the tops their shapes, so that these may
            depend on the data. A solver does not compile the net as one program then.
    """

    forward: Function
    top_shapes: Function = _missing_top_shapes
    params: Function | None = None
    ragged_axis: int | None = None
    computes_in_float32: bool = False
    instance: Any = None
    user_tops: Sequence[Any] = ()
    position: Position | None = None
    output: OutputFiles | None = None
    traced: Function | None = None
    may_reshape: bool = False


@dataclass(frozen=True)
class SourceInput:
    """Tops that are read from a data source.

    Attributes:
        probe: `probe(definition)` takes a `LayerDefinition`, inspects the source cheaply and returns a `SourceSpec`. It
            is called once, when the graph is built.
        open: `open(definition, tops)` opens the source; `tops` are `SourceSpec.tops`.
        check: `check(definition)` raises an error if settings are invalid. It opens no source, which may be missing;
            `probe` calls it first. It is None if there are no such settings.
        instance: the user's object that reads, or None.
        user_tops: the blobs that this object writes its tops to. Its passes find there what scripts wrote to the tops.
        position: the interface to save and restore the position of that object in its data, or None.
        example_shape: `example_shape(layer, height, width)` returns the shape of an example in the first top, of a
            LayerParameter and the height and width of its images in pixels, without opening the source. It is None if
            an example is an image of one or three channels.
        image_size: `image_size(layer)` returns the height and width of the first top's images in pixels, or None if
            the type's own settings do not determine them. It is None for types without such settings.
        label_shapes: `label_shapes(layer, batch_size, height, width)` returns the shapes of the tops after the first,
            also without opening the source. It is None, or returns None, if the settings do not determine the shapes.
        any_shape: whether an example may be an array of any shape (C, H, W), as in Datums, so that the layers that read
            the first top may need another shape than the shape of an image.
    """

    probe: Callable[..., SourceSpec]
    open: Function
    check: Callable[..., None] | None = None
    instance: Any = None
    user_tops: Sequence[Any] = ()
    position: Position | None = None
    example_shape: Callable[..., tuple[int, ...]] | None = None
    image_size: Callable[..., tuple[int, int] | None] | None = None
    label_shapes: Callable[..., Sequence[tuple[int, ...]] | None] | None = None
    any_shape: bool = False


@dataclass(frozen=True)
class CallerInput:
    """Tops that the caller passes.

    Attributes:
        shapes: `shapes()` returns a list of the tops' shapes.
        from_arrays: whether the caller sets arrays once, from which each pass takes the next batch (MemoryData).
            Otherwise the tops are inputs of the net.
        filler: for tops that are not inputs of the net, but are filled by the layer, how; otherwise None.
    """

    shapes: Function
    from_arrays: bool = False
    filler: TopFiller | None = None


@dataclass(frozen=True)
class PerLayer:
    """A function that makes an implementation for each layer, from the layer's settings, file or user object.

    Attributes:
        make: `make(definition, *, ctx)` returns the `LayerType` of one layer of a graph, usually a changed `ctx.type`.
        on_host: whether all results run on the host.
        resolve: see `Variants`; `make` needs the additional settings.
    """

    make: Function
    on_host: bool = False
    resolve: Function | None = None


@dataclass(frozen=True)
class Variants:
    """Several layer types for which forks use one name; the settings and blobs of a layer select one of them.

    Attributes:
        select: `select(layer)` returns the name of the variant that a LayerParameter belongs to.
        types: the LayerTypes, keyed by the name of the variant, which documentation shows. Their type names are equal.
        selection_doc: a sentence that tells how the variants are distinguished.
        resolve: `resolve(layer, shapes, layers, siblings)` returns the LayerParameter with additional settings, which
            `select` needs and which depend on the shapes of the layer's bottoms, each None if unknown, the
            LayerParameters of the net, and those among them that also read the layer's first bottom. `resolve` is None
            if `select` does not need such settings.
    """

    select: Callable[[Any], str]
    types: Mapping[str, Any] = field(hash=False)
    selection_doc: str
    resolve: Callable[[Any, Sequence[Any], Sequence[Any], Sequence[Any]], Any] | None = None
