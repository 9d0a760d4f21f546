"""Drawings of nets: layers as boxes, blobs as octagons, with Caffe's colors.

A drawing is a text in the DOT language. Graphviz's program `dot` converts it to other formats, if it is installed. SVG
does not need Graphviz: the layout library of `caffejax view` computes it, if the package mini-racer is installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Any

from ..base.atomic_write import replace_file
from ..base.errors import CaffejaxError
from ..core.schema import caffe_pb2
from ..core.schema.caffe_pb2 import LayerParameter, NetParameter, PoolingParameter
from ..tools.view.draw_style import get_draw_style
from ..tools.view.layer_graph import connect_layers
from ..tools.view.svg_drawing import Drawing, can_draw_svg, to_svg
from ._arguments import as_message
from ._fork_files import fall_back_to_fork

LAYER_STYLE_DEFAULT = {"shape": "record", "fillcolor": "#6495ED", "style": "filled"}
NEURON_LAYER_STYLE = {"shape": "record", "fillcolor": "#90EE90", "style": "filled"}
BLOB_STYLE = {"shape": "octagon", "fillcolor": "#E0E0E0", "style": "filled"}

_DIRECTIONS = ("LR", "RL", "TB", "BT")


def get_pooling_types_dict() -> dict[int, str]:
    """Return the names of the pooling methods by number."""
    return {number: name for name, number in PoolingParameter.PoolMethod.items()}


def get_edge_label(layer: LayerParameter) -> str:
    """Return the label of the edges to a layer's tops: the batch size or the number of outputs, or "" for none."""
    style = get_draw_style(layer.type)
    return style.format_edge(layer) if style.format_edge else ""


class DrawingError(CaffejaxError, ValueError):
    """Error for a layer that cannot be drawn. It is also a ValueError, as in Caffe."""


def get_layer_lr_mult(layer: LayerParameter) -> tuple[float, float]:
    """Return the learning rate multipliers of weights and biases, which are 1 by default.

    Raises:
        ValueError: for layers other than convolutions and inner products.
        DrawingError: for more than two multipliers.
    """
    if not get_draw_style(layer.type).lr_mult:
        raise ValueError(f"{layer.type} layers do not have a learning rate multiplier")
    if len(layer.param) > 2:
        raise DrawingError(
            f"layer '{layer.name}' has {len(layer.param)} param entries, but at most two are allowed, "
            "for weights and biases"
        )
    multipliers = [param.lr_mult for param in layer.param]
    first, second = [*multipliers, 1.0, 1.0][:2]
    return first, second


def get_layer_label(layer: LayerParameter, rankdir: str, display_lrm: bool = False) -> str:
    """Return the text of a layer's box: name, type, kernel, stride and pad.

    With `rankdir` "TB" or "BT" the text is one line, otherwise several lines. `display_lrm` adds the learning
    rate multipliers.
    """
    separator = " " if rankdir in ("TB", "BT") else "\n"
    style = get_draw_style(layer.type)
    kind = f"{layer.type} {style.format_kind(layer)}" if style.format_kind else layer.type
    parts = [layer.name, f"({kind})"]
    if style.format_window:
        parts += style.format_window(layer)
    if display_lrm and style.lr_mult:
        parts.append("lr mult: {:.1f}, {:.1f}".format(*get_layer_lr_mult(layer)))
    return separator.join(parts)


def choose_color_by_layertype(layertype: str) -> str:
    """Return the color of a layer's box, in the form "#RRGGBB"."""
    return get_draw_style(layertype).color or LAYER_STYLE_DEFAULT["fillcolor"]


def drawing(
    caffe_net: NetParameter,
    rankdir: str = "LR",
    label_edges: bool = True,
    phase: int | None = None,
    display_lrm: bool = False,
) -> Drawing:
    """Return the drawing of a net as nodes and edges.

    Args:
        caffe_net: the net in Caffe's current format, as `caffejax.read_net` returns it.
        rankdir: the direction of the drawing: "LR", "RL", "TB" or "BT".
        label_edges: if True, write the number of outputs and the batch size at the edges.
        phase: draw only the layers of this phase, `caffe.TRAIN` or `caffe.TEST`; default: all layers.
        display_lrm: if True, write the learning rate multipliers in the boxes.

    Raises:
        CaffejaxError: if the direction is invalid, or no layers remain.
        DrawingError: if `phase` is not None and a layer has both include and exclude rules.
    """
    if rankdir not in _DIRECTIONS:
        raise CaffejaxError(f"rankdir must be one of {', '.join(_DIRECTIONS)}, not '{rankdir}'")
    caffe_net = as_message(caffe_net, "NetParameter")
    layers = [x for x in caffe_net.layer if phase is None or _is_in_phase(x, phase)]
    if not layers:
        phase_text = "" if phase is None else f" in phase {caffe_pb2.Phase.Name(phase)}"
        raise CaffejaxError(f"net '{caffe_net.name}' has no layers{phase_text}: there is nothing to draw")
    result = Drawing(caffe_net.name or "Net", rankdir)
    for layer in connect_layers(layers):
        style = {**LAYER_STYLE_DEFAULT, "fillcolor": choose_color_by_layertype(layer.layer.type)}
        text = get_layer_label(layer.layer, rankdir, display_lrm)
        result.nodes[layer.key] = text, NEURON_LAYER_STYLE if layer.is_in_place else style
        for bottom in layer.layer.bottom:
            result.nodes[f"{bottom}_blob"] = bottom, BLOB_STYLE
            result.edges.append((f"{bottom}_blob", layer.key, ""))
        for top in layer.layer.top:
            result.nodes[f"{top}_blob"] = top, BLOB_STYLE
            result.edges.append((layer.key, f"{top}_blob", get_edge_label(layer.layer) if label_edges else ""))
    return result


def _is_in_phase(layer: LayerParameter, phase: int) -> bool:
    if layer.include and layer.exclude:
        raise DrawingError(f"layer {layer.name} has both include and exclude specified.")
    if layer.include:
        return any(rule.phase == phase or not rule.HasField("phase") for rule in layer.include)
    return not any(rule.phase == phase and rule.HasField("phase") for rule in layer.exclude)


def get_pydot_graph(
    caffe_net: NetParameter,
    rankdir: str,
    label_edges: bool = True,
    phase: int | None = None,
    display_lrm: bool = False,
) -> Any:
    """Return the drawing of a net as a `pydot.Dot`. The arguments are the same as in `drawing`.

    Raises:
        CaffejaxError: if the package pydot is not installed.
    """
    try:
        import pydot
    except ImportError as error:
        raise CaffejaxError(
            "get_pydot_graph needs the package pydot: pip install pydot; draw_net and draw_net_to_file do not need it"
        ) from error
    (graph,) = pydot.graph_from_dot_data(drawing(caffe_net, rankdir, label_edges, phase, display_lrm).to_dot())
    return graph


def draw_net(
    caffe_net: NetParameter,
    rankdir: str,
    ext: str = "png",
    phase: int | None = None,
    display_lrm: bool = False,
) -> bytes:
    """Return a picture of a net.

    Args:
        caffe_net, rankdir, phase, display_lrm: see `drawing`.
        ext: the format: "dot", "svg", or a format of Graphviz.

    Raises:
        CaffejaxError: if the format needs Graphviz and Graphviz is not installed or fails; for SVG, if neither Graphviz
            nor the package mini-racer is installed.
    """
    picture = drawing(caffe_net, rankdir, phase=phase, display_lrm=display_lrm)
    if ext == "dot":
        return picture.to_dot().encode()
    program = shutil.which("dot")
    if program is None:
        if ext == "svg":
            return to_svg(picture).encode()
        raise CaffejaxError(
            f"drawing to .{ext} needs Graphviz's program 'dot', which was not found: install graphviz with the "
            f"system's package manager (not with pip), or name the file {'.svg or ' * can_draw_svg()}.dot"
        )
    result = subprocess.run([program, f"-T{ext}"], input=picture.to_dot().encode(), capture_output=True, check=False)
    if result.returncode:
        raise CaffejaxError(f"{program} could not draw to .{ext}: {result.stderr.decode(errors='replace').strip()}")
    return result.stdout


def draw_net_to_file(
    caffe_net: NetParameter,
    filename: str | os.PathLike[str],
    rankdir: str = "LR",
    phase: int | None = None,
    display_lrm: bool = False,
) -> None:
    """Draw a net to a file; the file extension selects the format. This raises the same errors as `draw_net`."""
    ext = os.path.splitext(filename)[1][1:]
    if not ext:
        raise CaffejaxError(f"{filename}: the file's extension must be an image format, as in net.svg")
    content = draw_net(caffe_net, rankdir, ext, phase, display_lrm)
    with replace_file(filename) as file:
        file.write(content)


__getattr__ = fall_back_to_fork(__name__)
