"""What drawings say of a layer, as Caffe's do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from ..schema.caffe_pb2 import LayerParameter


@dataclass(frozen=True)
class Label:
    """What a drawing says of a type's layers beside their names, from their LayerParameters.

    Attributes:
        colour: of the box, in HTML's notation; None for the usual one.
        kind: what comes after the type's name.
        window: the lines on kernel, stride and pad.
        edge: what stands at the edges to the tops, such as the number of outputs.
        family: what it is coloured as, where the rest of its type does not tell; see `summary.family_of`.
        lr_mult: whether there are multipliers of the learning rate for a weight and a bias.
    """

    colour: str | None = None
    kind: Callable[[LayerParameter], str] | None = None
    window: Callable[[LayerParameter], list[str]] | None = None
    edge: Callable[[LayerParameter], str] | None = None
    family: Literal["activation"] | None = None
    lr_mult: bool = False


UNLABELLED = Label()


def window_lines(param: Any, everything: bool = False) -> list[str]:
    """Return lines on the kernel, which may cover everything, on stride and on pad."""
    return [
        "global" if everything else f"kernel size: {_spatial(param, 'kernel_size', 'kernel', 1)}",
        f"stride: {_spatial(param, 'stride', 'stride', 1)}",
        f"pad: {_spatial(param, 'pad', 'pad', 0)}",
    ]


def _spatial(param: Any, name: str, prefix: str, default: int) -> str:
    """Return a size as it was given: 3, or 1x3."""
    pair = [getattr(param, f"{prefix}_{axis}") for axis in "hw" if param.HasField(f"{prefix}_{axis}")]
    value = getattr(param, name)
    sizes = pair or ([value] if isinstance(value, int) else list(value)) or [default]
    return "x".join(map(str, sizes[:1] if len(set(sizes)) == 1 else sizes))
