"""Tests of what a layer type declares in its `LayerTraits`: the compiler changes programs by traits without a check.

A trait that is untrue gives wrong numbers without a message. Each test here computes the layer once or twice more, in
float64, and returns a description of the difference if the trait is untrue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import jax.numpy as jnp
import numpy as np

from ...base.errors import LayerError
from ..layers import LayerTraits
from ..layers.blob_checks import declared_params
from ..layers.context import strip_net_fields
from ..layers.dtype_policy import cast_inputs
from ..layers.row_padding import first_column, rows_axis
from ..ops.window import Window
from .layer_gradients import Case, compute_tops, net_gradients

TOLERANCE = 1e-5  # relative to the largest number of the array; some layers compute in float32
BFLOAT16_TOLERANCE = 2e-2


def find_untrue_traits(case: Case) -> Iterator[tuple[str, str]]:
    """Yield the name of each untrue trait of a layer's type, and a sentence that says where it is untrue.

    Python layers of users declare no traits.
    """
    if case.context.type.instance is not None:
        return
    for name, test in _TESTS.items():
        if getattr(case.context.type.traits, name) == _DEFAULTS[name]:
            continue
        try:
            problem = test(case)
        except Exception as error:  # for example since the layer does not take such arrays at all
            problem = f"the layer fails where the trait has to hold: {type(error).__name__}: {error}"
        if problem:
            yield name, problem


def _check_elementwise(case: Case) -> str | None:
    for i, top in enumerate(case.tops):
        if top.shape not in [bottom.shape for bottom in case.bottoms]:
            return f"top {i} has the shape {top.shape}, which no bottom has"
    # as fast kernels on CPUs order the axes, and a matrix transposed
    tops = case.compute_tops(bottoms=tuple(jnp.moveaxis(b, *_moved_axes(b)) for b in case.bottoms))
    reordered = [jnp.moveaxis(top, *_moved_axes(top)[::-1]) for top in tops]
    if (different := _find_difference(reordered, case.tops)) is not None:
        return f"with the axes of the bottoms in another order, top {different} is different: an axis has a meaning"
    x = case.bottoms[0]
    if x.size < 2:
        return None
    position = tuple(int(i) for i in np.unravel_index(x.size // 2, x.shape))
    moved = tuple(b.at[position].add(_scale(b)) if b.shape == x.shape else b for b in case.bottoms)
    others, expected = (
        [t.at[position].set(0) if t.shape == x.shape else t for t in tops]
        for tops in (case.compute_tops(bottoms=moved), case.tops)
    )
    if (different := _find_difference(others, expected)) is not None:
        return f"a change of the bottoms at {list(position)} changes top {different} elsewhere"
    return _check_rows(case) if len({b.shape[:1] for b in case.bottoms}) == 1 else None


def _moved_axes(array: Any) -> tuple[int, int]:
    """Return an axis and the position to which it is moved: channels to the end."""
    return (0, 0) if array.ndim < 2 else (min(1, array.ndim - 2), -1)


def _check_row_wise(case: Case) -> str | None:
    is_row_wise = case.context.evaluate(case.context.type.traits.row_wise)
    return _check_rows(case) if is_row_wise and case.bottoms else None


def _check_rows(case: Case) -> str | None:
    indices = case.context.type.traits.row_bottoms
    positions = range(len(case.bottoms)) if indices is None else [i for i in indices if i < len(case.bottoms)]
    numbers = {case.bottoms[i].shape[:1] for i in positions}
    if len(numbers) != 1 or not all(numbers):
        return None if not numbers else f"the bottoms do not have one number of rows: {sorted(numbers)}"
    ((num_rows,),) = numbers
    if any(top.shape[:1] != (num_rows,) for top in case.tops):
        return f"the tops do not have the {num_rows} rows of the bottoms"
    if num_rows < 2:
        return None
    expected = [top[:-1] for top in case.tops]
    shorter = tuple(b[:-1] if i in positions else b for i, b in enumerate(case.bottoms))
    top = _find_difference(case.compute_tops(bottoms=shorter), expected)
    if top is None:
        return None
    if not _is_random(case):
        return f"without the last row of the bottoms, the other rows of top {top} are different"
    # random numbers may depend on the number of rows
    changed = tuple(b.at[-1].add(_scale(b)) if i in positions else b for i, b in enumerate(case.bottoms))
    top = _find_difference([t[:-1] for t in case.compute_tops(bottoms=changed)], expected)
    return None if top is None else f"a change of the last row of the bottoms changes other rows of top {top}"


def _check_row_bottoms(case: Case) -> str | None:
    indices, bottoms = case.context.type.traits.row_bottoms or (), case.context.type.signature.bottoms
    most = bottoms[1] if isinstance(bottoms, tuple) else bottoms  # a layer may lack optional bottoms
    wrong = [i for i in indices if i < 0 or (most is not None and i >= most)]
    return f"there is no bottom {wrong[0]}" if wrong else None


def _check_counts_rows(case: Case) -> str | None:
    traits = case.context.type.traits
    if not case.context.evaluate(traits.counts_rows):
        return None
    positions = range(len(case.bottoms)) if traits.row_bottoms is None else traits.row_bottoms
    longer = tuple(_add_row(b) if i in positions else b for i, b in enumerate(case.bottoms))
    context = case.context.replace(num_rows=jnp.int32(case.bottoms[positions[0]].shape[0]))
    tops = compute_tops(context, case.blobs, longer)
    valid_tops = [top[:-1] if i in traits.row_tops else top for i, top in enumerate(tops)]
    problem = _compare(valid_tops, case.tops, "the same with a row of padding")
    if problem or not case.context.type.has_backward:
        return problem
    diffs = tuple(_add_row(diff) if i in traits.row_tops else diff for i, diff in enumerate(case.top_diffs))
    padded = replace(case, context=context, bottoms=longer, tops=tops, top_diffs=diffs, compiled={})
    for argument, gradient, expected in zip(case.arguments, net_gradients(padded), net_gradients(case), strict=True):
        is_padded = argument.kind == "bottom" and argument.position in positions
        if _find_difference([gradient[:-1] if is_padded else gradient], [expected]) is not None:
            return f"with a row of padding, the gradient of {argument.name} is different"
    return None


def _add_row(array: Any) -> Any:
    return jnp.pad(array, [(0, 1), *((0, 0) for _ in array.shape[1:])])


def _check_row_tops(case: Case) -> str | None:
    return None if case.context.type.traits.counts_rows else "the type does not declare counts_rows"


def _check_takes_one_image(case: Case) -> str | None:
    first = case.bottoms[0]
    for bottom in (jnp.concatenate([first] * 2), jnp.abs(first) + 1):  # two images, or rows of another one
        try:
            case.compute_tops(bottoms=(bottom, *case.bottoms[1:]))
        except LayerError:
            return None
    return "it takes two images"


def _check_is_relu(case: Case) -> str | None:
    if not case.context.evaluate(case.context.type.traits.is_relu):
        return None
    return _compare(case.tops, [jnp.maximum(b, 0) for b in case.bottoms], "max(x, 0)")


def _check_channel_affine(case: Case) -> str | None:
    affine = case.context.type.traits.channel_affine
    if affine is None or not case.bottoms:
        return None
    x, shapes = case.bottoms[0], [tuple(blob.shape) for blob in case.blobs]
    for axis in range(x.ndim):
        if case.context.call(affine.applies, shapes, axis, x.shape[axis]):
            shape = [-1 if i == axis else 1 for i in range(x.ndim)]
            factor, bias = (jnp.reshape(a, shape) for a in case.context.call(affine.factor_and_bias, blobs=case.blobs))
            return _compare(case.tops, [factor * x + bias], f"factor * x + bias for the channels of axis {axis}")
    return None


def _check_depends_only_on_shapes(case: Case) -> str | None:
    return _compare(case.compute_tops(bottoms=tuple(b + 1 for b in case.bottoms)), case.tops, "its value before")


def _check_fold_scale_bias(case: Case) -> str | None:
    fold = case.context.type.traits.fold_scale_bias
    if fold is None or case.tops[0].ndim < 2:
        return None
    channels = case.tops[0].shape[1]
    factor, bias = np.linspace(0.5, 2, channels), np.linspace(-1, 1, channels)
    folded = case.context.call(fold, factor, bias, blobs=[np.asarray(blob) for blob in case.blobs])
    if folded is None:
        return None
    context = replace(case.context, layer=strip_net_fields(folded[0]), blob_names=None)
    tops = case.compute_tops(context, blobs=tuple(jnp.asarray(b, jnp.float64) for b in folded[1]))
    shape = (channels,) + (1,) * (case.tops[0].ndim - 2)
    return _compare(tops, [factor.reshape(shape) * case.tops[0] + bias.reshape(shape)], "factor * top + bias")


def _check_is_identity(case: Case) -> str | None:
    if not case.context.evaluate(case.context.type.traits.is_identity):
        return None
    return _compare(case.tops, [case.bottoms[0]] * len(case.tops), "the bottom")


def _check_data_movement(case: Case) -> str | None:
    bottoms, tops = (np.concatenate([np.ravel(a) for a in arrays]) for arrays in (case.bottoms, case.tops))
    if not np.isin(tops, bottoms).all():
        return "the tops hold numbers that no bottom has"
    if case.context.type.traits.data_movement == "all" and not np.isin(bottoms, tops).all():
        return 'the tops lack numbers of the bottoms; declare "some"'
    return None


def _check_dtype_policy(case: Case) -> str | None:
    if _is_random(case):  # random numbers depend on the dtype
        return None
    context = case.context.replace(config=replace(case.context.config, precision="bfloat16"))
    indices = case.context.type.gradient.indices.positions(len(case.bottoms))
    bottoms = tuple(b.astype(jnp.float32 if i in indices else jnp.bfloat16) for i, b in enumerate(case.bottoms))
    blobs, bottoms = cast_inputs(context, [blob.astype(jnp.float32) for blob in case.blobs], bottoms)
    tops = case.compute_tops(context, blobs=blobs, bottoms=bottoms)
    rounded = [tuple(array.astype(jnp.float64) for array in arrays) for arrays in (blobs, bottoms)]
    expected = case.compute_tops(blobs=rounded[0], bottoms=rounded[1])
    top = _find_difference([t.astype(jnp.float64) for t in tops], expected, BFLOAT16_TOLERANCE)
    return None if top is None else f"with bottoms in bfloat16, top {top} is off by more than {BFLOAT16_TOLERANCE:.0%}"


def _check_accepts_integers(case: Case) -> str | None:
    indices = case.context.type.gradient.indices.positions(len(case.bottoms))
    is_whole = [i in indices or bool((b == jnp.trunc(b)).all()) for i, b in enumerate(case.bottoms)]
    integers = tuple(
        (b if whole else jnp.round(3 * b)).astype(jnp.int32) for b, whole in zip(case.bottoms, is_whole, strict=True)
    )
    tops = case.compute_tops(bottoms=integers)
    expected = case.compute_tops(bottoms=tuple(b.astype(jnp.float64) for b in integers))
    return _compare([t.astype(jnp.float64) for t in tops], expected, "the top of the same numbers as floats")


def _check_spatial_map(case: Case) -> str | None:
    traits = case.context.type.traits
    x, tops = case.bottoms[0], [top for top in case.tops[:1] if top.ndim > 2]  # further ones may be statistics
    sizes, is_transposed = [top.shape[2:] for top in tops], traits.spatial_map == "transposed"
    bottom_sizes = [bottom.shape[2:] for bottom in case.bottoms]
    if traits.spatial_map == "same" and any(size not in bottom_sizes for size in sizes):
        return f"the bottoms' pixels are {bottom_sizes}, and the tops' {sizes}"
    if traits.window is None:
        return None
    window = case.context.call(traits.window, x)
    for size in sizes:
        small, large = (size, x.shape[2:]) if is_transposed else (x.shape[2:], size)
        if any(abs(a - b) > 1 for a, b in zip(window.output_size(small), large, strict=True)):  # Pooling rounds up
            return f"the window {window} does not fit the pixels of bottom and top, {x.shape[2:]} and {size}"
    return None if is_transposed else _check_window(case, window)


def _check_receptive_window(case: Case) -> str | None:
    receptive_window = case.context.type.traits.receptive_window
    if receptive_window is None or not case.bottoms or not case.tops:
        return None
    x = case.bottoms[0]
    window = case.context.call(receptive_window, x) if case.tops[0].shape[2:] == x.shape[2:] else None
    return None if window is None or x.ndim < 3 else _check_window(case, window)


def _check_window(case: Case, window: Window) -> str | None:
    """Return a problem if a change of one pixel changes pixels of the top whose window does not have it."""
    x = case.bottoms[0]
    if x.ndim != len(window.kernel) + 2 or 0 in x.shape:
        return None
    pixel = tuple(n // 2 for n in x.shape[2:])
    moved = x.at[(slice(None), slice(None), *pixel)].add(_scale(x))
    tops = case.compute_tops(bottoms=(moved, *case.bottoms[1:]))
    top, before = tops[0], case.tops[0]
    if top.ndim != x.ndim:
        return None
    changed = np.argwhere((np.abs(np.asarray(top - before)) > TOLERANCE * _scale(before)).any(axis=(0, 1)))
    for position in changed:
        axes = zip(position, pixel, window.kernel, window.stride, window.low, window.dilation, strict=True)
        if not all(p - (o * s - low) in range(0, k * d, d) for o, p, k, s, low, d in axes):
            return f"a change of the bottom's pixel {list(pixel)} changes the top's pixel {[int(n) for n in position]}"
    return None


def _check_weight_axes(case: Case) -> str | None:
    traits, blobs = case.context.type.traits, case.blobs
    axes = traits.weight_axes
    if traits.spatial_map in ("windows", "transposed"):  # declared for images
        axes += case.bottoms[0].ndim - 4 if axes == 4 else 0
    if blobs and blobs[0].ndim != axes:
        return f"the first blob has {blobs[0].ndim} axes, not {axes}"
    return None


def _check_blob_names(case: Case) -> str | None:
    names = [spec.name for spec in declared_params(case.context, case.bottoms) if spec.persistent]
    declared = [name for name in case.context.type.traits.blob_names if name in names]
    return None if names == declared else f"the layer's blobs are {', '.join(names)}"


def _check_convert_stored(case: Case) -> str | None:
    blobs = tuple(map(np.asarray, case.blobs))
    converted, _ = case.context.convert_stored(blobs, [b.shape for b in blobs])
    return _compare(converted, case.blobs, "as it is stored, though it has the order and the shape of the layer")


def _check_top_is_param(case: Case) -> str | None:
    return _compare(case.tops, case.blobs[:1], "the first blob")


def _check_marks_detections(case: Case) -> str | None:
    shape = case.tops[0].shape
    return None if shape[-1:] == (5,) else f"rows of detections have 5 numbers, but top 0 has the shape {shape}"


def _check_takes_logits(case: Case) -> str | None:
    x, *others = case.bottoms
    return _compare(case.compute_tops(bottoms=(x + _scale(x), *others)), case.tops, "the same after all scores rise")


def _check_label_axis(case: Case) -> str | None:
    axis = case.context.evaluate(case.context.type.traits.label_axis)
    if axis is None:
        return None
    labels, num_labels = np.asarray(case.tops[0]), case.bottoms[0].shape[axis]
    if np.isin(labels, np.arange(num_labels)).all():
        return None
    return f"top 0 holds other numbers than the indices 0 to {num_labels - 1} of axis {axis}"


def _check_pads_rows(case: Case) -> str | None:
    for i, top in enumerate(case.tops):
        is_padding = (first_column(np.asarray(top)) < 0).astype(int)
        if (np.diff(is_padding, axis=min(rows_axis(top), is_padding.ndim - 1)) < 0).any():
            return f"a row of top {i} that begins with a negative number has rows after it"
    return None


def _is_random(case: Case) -> bool:
    key = case.context.fold_in_args
    if key is None:
        return False
    context = case.context.replace(fold_in_args=(key[0], np.uint32(np.uint32(key[1]) ^ 1)))
    return _find_difference(case.compute_tops(context), case.tops) is not None


def _scale(array: Any) -> float:
    """Return a change that shows: the largest finite number of the array, or 1."""
    magnitudes = np.abs(np.asarray(array, np.float64))
    return float(magnitudes[np.isfinite(magnitudes)].max(initial=0.0)) or 1.0


def _compare(tops: Sequence[Any], expected: Sequence[Any], description: str) -> str | None:
    if len(tops) != len(expected):
        return f"there are {len(tops)} tops"
    top = _find_difference(tops, expected)
    return None if top is None else f"top {top} is not {description}"


def _find_difference(tops: Sequence[Any], expected: Sequence[Any], tolerance: float = TOLERANCE) -> int | None:
    """Return the position of the first array that differs, or None. NaN equals NaN."""
    for i, (a, b) in enumerate(zip(tops, expected, strict=True)):
        x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
        if x.shape != y.shape or not np.allclose(x, y, rtol=0, atol=tolerance * _scale(y), equal_nan=True):
            return i
    return None


_DEFAULTS: Mapping[str, Any] = MappingProxyType(vars(LayerTraits()))
# each trait has the test of its name, so that a new trait without a test is an error; `spatial_map` tests `window`
_TESTS: Mapping[str, Callable[[Case], str | None]] = MappingProxyType(
    {name: globals()[f"_check_{name}"] for name in _DEFAULTS if name != "window"}
)
