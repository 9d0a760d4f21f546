"""Draws nets: layers as boxes, blobs as octagons, coloured as by Caffe.

The drawing is a text in the DOT language. Graphviz's `dot`, where it is installed, turns it into any other format;
SVG can be had without it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass, field
from typing import Any

from ..atomic import replacing
from ..errors import CaffejaxError, GraphError
from ..layers import layer_type
from ..layers.label import UNLABELLED, Label
from ..schema.caffe_pb2 import LayerParameter, NetParameter, PoolingParameter
from ._svg import to_svg

LAYER_STYLE_DEFAULT = {"shape": "record", "fillcolor": "#6495ED", "style": "filled"}
NEURON_LAYER_STYLE = {"shape": "record", "fillcolor": "#90EE90", "style": "filled"}
BLOB_STYLE = {"shape": "octagon", "fillcolor": "#E0E0E0", "style": "filled"}

_DIRECTIONS = ("LR", "RL", "TB", "BT")


@dataclass
class Drawing:
    """A net as nodes and edges.

    Attributes:
        name: the net's.
        rankdir: where it runs to: "LR", "RL", "TB" or "BT".
        nodes: label and style by node.
        edges: from node, to node, label.
    """

    name: str
    rankdir: str
    nodes: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)
    edges: list[tuple[str, str, str]] = field(default_factory=list)

    def to_dot(self) -> str:
        """Return the drawing in the DOT language."""
        lines = [f"digraph {_quoted(self.name)} {{", f"rankdir={self.rankdir};"]
        for node, (label, style) in self.nodes.items():
            settings = ", ".join(f"{key}={_quoted(value)}" for key, value in style.items())
            lines.append(f"{_quoted(node)} [label={_quoted(label, style['shape'] == 'record')}, {settings}];")
        for source, target, label in self.edges:
            lines.append(f"{_quoted(source)} -> {_quoted(target)} [label={_quoted(label)}];")
        return "\n".join([*lines, "}\n"])


def _quoted(text: str, record: bool = False) -> str:
    """Return a string of the DOT language; in a record's label some characters more have a meaning."""
    for mark in '\\"' + ("{}|<>" if record else ""):
        text = text.replace(mark, f"\\{mark}")
    return '"' + text.replace("\n", "\\n") + '"'


def get_pooling_types_dict() -> dict[int, str]:
    """Return the names of the pooling methods, by number."""
    return {number: name for name, number in PoolingParameter.PoolMethod.items()}


def get_edge_label(layer: LayerParameter) -> str:
    """Return what stands at the edges to a layer's tops: batch size, or number of outputs; else nothing."""
    label = _label(layer.type)
    return label.edge(layer) if label.edge else ""


def get_layer_lr_mult(layer: LayerParameter) -> tuple[float, float]:
    """Return the multipliers of the learning rate of weights and biases; 1 where the layer says nothing.

    Raises:
        ValueError: for layers other than convolutions and inner products.
    """
    if not _label(layer.type).lr_mult:
        raise ValueError(f"{layer.type} layers do not have a learning rate multiplier")
    if len(layer.param) > 2:
        raise ValueError(f"layer '{layer.name}' has {len(layer.param)} param entries; weights and biases are two")
    given = [param.lr_mult for param in layer.param]
    first, second = [*given, 1.0, 1.0][:2]
    return first, second


def get_layer_label(layer: LayerParameter, rankdir: str, display_lrm: bool = False) -> str:
    """Return the text in a layer's box: name, type, kernel, stride and pad; in one line if the net runs up or down."""
    separator = " " if rankdir in ("TB", "BT") else "\n"
    label = _label(layer.type)
    kind = f"{layer.type} {label.kind(layer)}" if label.kind else layer.type
    parts = [layer.name, f"({kind})"]
    if label.window:
        parts += label.window(layer)
    if display_lrm and label.lr_mult:
        parts.append("lr mult: {:.1f}, {:.1f}".format(*get_layer_lr_mult(layer)))
    return separator.join(parts)


def _label(type_name: str) -> Label:
    """Return what the type says of its layers; of one that is not registered nothing is known."""
    try:
        return layer_type(type_name).facts.label
    except GraphError:
        return UNLABELLED


def choose_color_by_layertype(layertype: str) -> str:
    """Return the colour of a layer's box, in HTML's notation."""
    return _label(layertype).colour or LAYER_STYLE_DEFAULT["fillcolor"]


def drawing(
    caffe_net: NetParameter,
    rankdir: str = "LR",
    label_edges: bool = True,
    phase: int | None = None,
    display_lrm: bool = False,
) -> Drawing:
    """Return a net as nodes and edges.

    Args:
        caffe_net: the net, in its current form, as `caffejax.read_net` reads it.
        rankdir: where it runs to: "LR", "RL", "TB" or "BT".
        label_edges: number of outputs and batch size at the edges.
        phase: only the layers of this phase: `caffe.TRAIN` or `caffe.TEST`.
        display_lrm: multipliers of the learning rate in the boxes.

    Raises:
        CaffejaxError: for another direction.
        ValueError: for a layer with both include and exclude rules, if a phase was given.
    """
    if rankdir not in _DIRECTIONS:
        raise CaffejaxError(f"rankdir is one of {', '.join(_DIRECTIONS)}, not '{rankdir}'")
    result = Drawing(caffe_net.name or "Net", rankdir)
    for number, layer in enumerate(caffe_net.layer):
        if phase is not None and not _in_phase(layer, phase):
            continue
        node = f"{layer.name}_{layer.type}"
        if node in result.nodes:
            node += f"_{number}"  # nets may repeat a name, in layers of different phases above all
        in_place = len(layer.bottom) == 1 and list(layer.top) == list(layer.bottom)
        style = {**LAYER_STYLE_DEFAULT, "fillcolor": choose_color_by_layertype(layer.type)}
        result.nodes[node] = get_layer_label(layer, rankdir, display_lrm), NEURON_LAYER_STYLE if in_place else style
        for bottom in layer.bottom:
            result.nodes[f"{bottom}_blob"] = bottom, BLOB_STYLE
            result.edges.append((f"{bottom}_blob", node, ""))
        for top in layer.top:
            result.nodes[f"{top}_blob"] = top, BLOB_STYLE
            result.edges.append((node, f"{top}_blob", get_edge_label(layer) if label_edges else ""))
    return result


def _in_phase(layer: LayerParameter, phase: int) -> bool:
    if layer.include and layer.exclude:
        raise ValueError(f"layer {layer.name} has both include and exclude specified.")
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
    """Return the drawing as a `pydot.Dot`.

    Raises:
        CaffejaxError: if the package pydot is not installed.
    """
    try:
        import pydot
    except ImportError as error:
        raise CaffejaxError(
            "get_pydot_graph needs the package pydot: pip install pydot; draw_net and draw_net_to_file do without"
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
        caffe_net: as for `drawing`, with the rest.
        rankdir: where it runs to: "LR", "RL", "TB" or "BT".
        ext: the format: "dot", "svg", or what Graphviz can do.
        phase: only the layers of this phase.
        display_lrm: multipliers of the learning rate in the boxes.

    Raises:
        CaffejaxError: if the format needs Graphviz and that is not there or fails.
    """
    picture = drawing(caffe_net, rankdir, phase=phase, display_lrm=display_lrm)
    if ext == "dot":
        return picture.to_dot().encode()
    program = shutil.which("dot")
    if program is None:
        if ext == "svg":
            return to_svg(picture.nodes, picture.edges, rankdir).encode()
        raise CaffejaxError(
            f"drawing to .{ext} needs Graphviz's program 'dot', which was not found: install the package graphviz, "
            "or name the file .svg or .dot"
        )
    done = subprocess.run([program, f"-T{ext}"], input=picture.to_dot().encode(), capture_output=True, check=False)
    if done.returncode:
        raise CaffejaxError(f"{program} could not draw to .{ext}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def draw_net_to_file(
    caffe_net: NetParameter,
    filename: str | os.PathLike[str],
    rankdir: str = "LR",
    phase: int | None = None,
    display_lrm: bool = False,
) -> None:
    """Draw a net to a file; the end of its name is the format. Raises as `draw_net`."""
    ext = os.path.splitext(filename)[1][1:]
    if not ext:
        raise CaffejaxError(f"{filename}: the end of the name says the format, as in net.svg")
    content = draw_net(caffe_net, rankdir, ext, phase, display_lrm)
    with replacing(filename) as file:
        file.write(content)
