"""Products of matrices, and convolutions."""

from __future__ import annotations

import string
from collections.abc import Sequence

import numpy as np

from ..values import Value, computed, known
from .registry import Equation, cannot, converts
from .shape import padded


@converts("dot_general")
def dot_general(eqn: Equation) -> Value:
    """A product over some axes of both operands: MatMul where it is one of plain matrices, else Einsum."""
    (x, y), b = eqn.inputs, eqn.builder
    (over_x, over_y), (batch_x, batch_y) = eqn.params["dimension_numbers"]
    if not batch_x and tuple(over_x) == (len(x.shape) - 1,) and len(y.shape) == 2 and len(over_y) == 1:
        name = b.whole(y) if over_y[0] == 0 else transposed(eqn, y, (1, 0))
        return computed(b.node("MatMul", [b.whole(x), name]), eqn.shape, eqn.dtype)
    letters = iter(string.ascii_letters)
    of_x = [next(letters) for _ in x.shape]
    of_y = [""] * len(y.shape)
    for i, j in [*zip(over_x, over_y, strict=True), *zip(batch_x, batch_y, strict=True)]:
        of_y[j] = of_x[i]
    of_y = [letter or next(letters) for letter in of_y]
    out = [of_x[i] for i in batch_x] + [letter for i, letter in enumerate(of_x) if i not in (*over_x, *batch_x)]
    out += [letter for i, letter in enumerate(of_y) if i not in (*over_y, *batch_y)]
    return eqn.emit("Einsum", equation=f"{''.join(of_x)},{''.join(of_y)}->{''.join(out)}")


def transposed(eqn: Equation, x: Value, order: Sequence[int]) -> str:
    """Return the name of a value with its axes in another order."""
    b = eqn.builder
    if tuple(order) == tuple(range(len(order))):
        return b.whole(x)
    if x.array is not None and x.is_whole:
        return b.constant(x.array.transpose(order))
    name: str = b.node("Transpose", [b.whole(x)], perm=list(order))
    return name


@converts("conv_general_dilated")
def convolution(eqn: Equation) -> Value:
    """Conv on (batch, channels, space), whatever order the axes have."""
    (x, weight), p, b = eqn.inputs, eqn.params, eqn.builder
    if p["batch_group_count"] != 1:
        raise cannot("convolves groups of the batch")
    numbers = p["dimension_numbers"]
    n = len(numbers.lhs_spec) - 2
    if n == 0:
        raise cannot("convolves no axes of space")
    x = computed(transposed(eqn, x, numbers.lhs_spec), tuple(x.shape[i] for i in numbers.lhs_spec), x.dtype)
    low, high = ([pads[i] for pads in p["padding"]] for i in (0, 1))
    if any(d != 1 for d in p["lhs_dilation"]):
        x = _spread(eqn, x, p["lhs_dilation"])
    if any(pad < 0 for pad in (*low, *high)):  # what is cut off
        x = padded(eqn, x, known(np.zeros((), x.dtype)), [0, 0, *low], [0, 0, *high])
        low, high = [0] * n, [0] * n
    kernel = [int(weight.shape[i]) for i in numbers.rhs_spec[2:]]
    name = b.node(
        "Conv",
        [b.whole(x), transposed(eqn, weight, numbers.rhs_spec)],
        kernel_shape=kernel,
        strides=list(p["window_strides"]),
        pads=[*low, *high],
        dilations=list(p["rhs_dilation"]),
        group=p["feature_group_count"],
    )
    back = np.argsort(numbers.out_spec)
    made = computed(name, tuple(eqn.shape[i] for i in numbers.out_spec), eqn.dtype)
    return computed(transposed(eqn, made, [int(i) for i in back]), eqn.shape, eqn.dtype)


def _spread(eqn: Equation, x: Value, dilation: Sequence[int]) -> Value:
    """Put zeros between the cells: a transposed convolution of each channel with a kernel of one cell."""
    b, channels = eqn.builder, x.shape[1]
    kernel = np.ones((channels, 1, *(1 for _ in dilation)), x.dtype)
    name = b.node(
        "ConvTranspose", [b.whole(x), b.constant(kernel)], strides=list(dilation), group=channels,
        kernel_shape=[1] * len(dilation),
    )  # fmt: skip
    sizes = ((n - 1) * d + 1 for n, d in zip(x.shape[2:], dilation, strict=True))
    return computed(name, (*x.shape[:2], *sizes), x.dtype)
