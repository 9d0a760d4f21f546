"""Colours and texts of layers in drawings, by layer type, as in Caffe's draw_net.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...core.schema.caffe_pb2 import LayerParameter


@dataclass(frozen=True)
class DrawStyle:
    """The style of a layer type in drawings. The fields `format_...` are functions of a LayerParameter.

    Attributes:
        color: the colour of the box as "#RRGGBB", or None for the default colour.
        format_kind: returns the text after the type name, such as the pooling method; None for no text.
        format_window: returns three lines of text with kernel, stride and pad; None for layers without a kernel.
        format_edge: returns the text at the edges from the layer to its tops, such as the number of outputs; None for
            no text.
        lr_mult: True if the box may show the learning rate multipliers of a weight and a bias.
    """

    color: str | None = None
    format_kind: Callable[[LayerParameter], str] | None = None
    format_window: Callable[[LayerParameter], list[str]] | None = None
    format_edge: Callable[[LayerParameter], str] | None = None
    lr_mult: bool = False


def get_draw_style(type_name: str) -> DrawStyle:
    """Return the style of a layer type, or the default style if the type has no entry in `DRAW_STYLES`."""
    return DRAW_STYLES.get(type_name, _DEFAULT_STYLE)


def _format_window_lines(param: Any, is_global: bool = False) -> list[str]:
    """Return three lines of text with kernel size ("global" if `is_global`), stride and pad."""
    return [
        "global" if is_global else f"kernel size: {_format_size(param, 'kernel_size', 'kernel', 1)}",
        f"stride: {_format_size(param, 'stride', 'stride', 1)}",
        f"pad: {_format_size(param, 'pad', 'pad', 0)}",
    ]


def _format_size(param: Any, name: str, prefix: str, default: int) -> str:
    """Return a size in a layer's settings as text, such as "1x3", or "3" if the sizes along all axes are equal."""
    pair = [getattr(param, f"{prefix}_{axis}") for axis in "hw" if param.HasField(f"{prefix}_{axis}")]
    value = getattr(param, name)
    sizes = pair or ([value] if isinstance(value, int) else list(value)) or [default]
    return "x".join(map(str, sizes[:1] if len(set(sizes)) == 1 else sizes))


_DEFAULT_STYLE = DrawStyle()
_CONVOLUTION_STYLE = DrawStyle(
    "#FF5050",
    format_window=lambda layer: _format_window_lines(layer.convolution_param),
    format_edge=lambda layer: str(layer.convolution_param.num_output),
    lr_mult=True,
)
_DATABASE_STYLE = DrawStyle(format_edge=lambda layer: f"Batch {layer.data_param.batch_size}")
DRAW_STYLES: dict[str, DrawStyle] = {  # by type name; users may add their layer types
    **dict.fromkeys(("AnnotatedData", "BoxData", "CustomData", "Data", "LaneData"), _DATABASE_STYLE),
    "Convolution": _CONVOLUTION_STYLE,
    "ConvolutionDepthwise": _CONVOLUTION_STYLE,
    "Deconvolution": _CONVOLUTION_STYLE,
    "DepthwiseConvolution": _CONVOLUTION_STYLE,
    "InnerProduct": DrawStyle(
        "#CC33FF", format_edge=lambda layer: str(layer.inner_product_param.num_output), lr_mult=True
    ),
    "Pooling": DrawStyle(
        "#FF9900",
        format_kind=lambda layer: layer.pooling_param.PoolMethod.Name(layer.pooling_param.pool),
        format_window=lambda layer: _format_window_lines(
            layer.pooling_param, is_global=layer.pooling_param.global_pooling
        ),
    ),
}
