"""Results of a net for an image as text, JSON and drawings: the best classes, boxes, or a label for each pixel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...base.errors import DataError, GraphError, Problem
from ...base.human_readable import format_count
from ...base.paths import describe_content, read_bytes
from ...base.text_table import align_columns
from ...core.graph import Graph
from ...core.layers import type_of
from ...core.layers.row_padding import strip_padding
from ...core.schema.caffe_pb2 import LabelMap, LayerParameter, NetParameter
from ...core.schema.text import parse_text

ClassNames = Mapping[int, str]
_FONT_HEIGHT = 22  # approximate height of OpenCV's simplex font at scale 1, in pixels


def read_names(file: str) -> ClassNames:
    """Read class names by label, from a text file with one name on each line, or from SSD's labelmap .prototxt.

    Raises:
        DataError: if the file cannot be read.
    """
    content = read_bytes(file, DataError)
    if (kind := describe_content(content) or "a binary file") != "a text" and content:
        raise DataError(Problem(f"must have one class name on each line, but is {kind}", file))
    text = content.decode(errors="replace")
    if file.endswith((".prototxt", ".pbtxt")):
        labels = parse_text(text, LabelMap, file=file)
        return {item.label: item.display_name or item.name for item in labels.item}
    return dict(enumerate(line.strip() for line in text.rstrip().splitlines()))


def find_names_problem(graph: Graph, names: ClassNames) -> str | None:
    """Return a message if an output has a different number of classes than there are names, otherwise None.

    The graph must have the shapes with which it will run, see `reshape_graph`; this applies to `check_outputs`, too.
    """
    for output in graph.outputs:
        shape = graph.blobs[output].shape
        if _detect_kind(graph, output, shape) in ("classes", "pixels") and names:
            num_classes = shape[1]
            if len(names) != num_classes:
                return f"has names for {len(names)} classes, but the output '{output}' has {num_classes}"
    return None


def find_main_outputs(full_graph: Graph, graph: Graph) -> tuple[str, ...]:
    """Return the names of the outputs that do not belong to auxiliary classifiers.

    An output is auxiliary if a different output has the same shape and a larger loss weight.

    Args:
        full_graph: the net with its losses.
        graph: the net without them, with the shapes with which it will run.
    """
    outputs = graph.outputs
    loss_weights = dict.fromkeys(outputs, 0.0)
    sources = {top: layer.bottoms[0] for layer in full_graph.layers if layer.is_inserted_split for top in layer.tops}
    for layer in full_graph.layers:
        for bottom in layer.bottoms[:1]:
            name = sources.get(bottom, bottom)
            loss_weights[name] = max(loss_weights.get(name, 0.0), *layer.loss_weights, 0.0)
    return tuple(
        name
        for name in outputs
        if not any(
            0 < loss_weights[name] < loss_weights[other] and graph.blobs[name].shape == graph.blobs[other].shape
            for other in outputs
        )
    )


@dataclass(frozen=True)
class Classification:
    """The best classes of an image.

    Attributes:
        blob: the name of the output.
        label_scores: pairs of label and score, by descending score.
        score_name: "probability" or "score".
    """

    blob: str
    label_scores: tuple[tuple[int, float], ...]
    score_name: str

    def rows(self, names: ClassNames) -> list[dict[str, Any]]:
        """Return a dict for each class, for tables and JSON."""
        return [
            {self.score_name: value, "label": label, "name": names.get(label, "")} for label, value in self.label_scores
        ]

    def draw(self, image: np.ndarray, names: ClassNames, factor: int) -> None:
        """Write the classes on an image (H, W, 3), which was enlarged by `factor`."""
        for line_index, (label, value) in enumerate(self.label_scores):
            score = f"{value:.4f}" if self.score_name == "probability" else f"{value:.4g}"
            _write_text(image, f"{names.get(label) or label}: {score}", (4, 4 + line_index * _line_height(image)))


@dataclass(frozen=True)
class Detections:
    """The objects that were detected in an image.

    Attributes:
        blob: the name of the output.
        objects: the label, the score, and the box (left, top, right, bottom) of each object, in pixels of the
            image, by descending score.
    """

    blob: str
    objects: tuple[tuple[int, float, tuple[int, ...]], ...]

    def rows(self, names: ClassNames) -> list[dict[str, Any]]:
        """Return a dict for each box, for tables and JSON."""
        return [
            {"score": score, "label": label, "name": names.get(label, ""), "box": list(box)}
            for label, score, box in self.objects
        ]

    def draw(self, image: np.ndarray, names: ClassNames, factor: int) -> None:
        """Draw the boxes on an image (H, W, 3), which was enlarged by `factor`."""
        import cv2

        for label, score, image_box in reversed(self.objects):
            box = [factor * coordinate for coordinate in image_box]
            color = make_palette()[label % 256].tolist()
            cv2.rectangle(image, box[:2], box[2:], color, max(1, _line_height(image) // 8))
            _write_text(
                image, f"{names.get(label) or label} {score:.2f}", (box[0], box[1] - _line_height(image)), color
            )


@dataclass(frozen=True, eq=False)
class Segmentation:
    """A label for each pixel of an image.

    Attributes:
        blob: the name of the output.
        labels: integers (H, W), at the resolution of the output.
    """

    blob: str
    labels: np.ndarray

    def rows(self, names: ClassNames) -> list[dict[str, Any]]:
        """Return a dict for each label with the fraction of pixels that have it, for tables and JSON."""
        labels, counts = np.unique(self.labels, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        fractions = zip(labels[order].tolist(), (counts[order] / counts.sum()).tolist(), strict=True)
        return [{"share": fraction, "label": label, "name": names.get(label, "")} for label, fraction in fractions]

    def draw(self, image: np.ndarray, names: ClassNames, factor: int) -> None:
        """Color the pixels of an image (H, W, 3) by their labels, except label 0, the background in most nets."""
        import cv2

        size = image.shape[1::-1]
        labels = cv2.resize(self.labels.astype(np.uint8), size, interpolation=cv2.INTER_NEAREST)
        colored = image // 2 + make_palette()[labels] // 2
        image[labels > 0] = colored[labels > 0]
        for line_index, row in enumerate(row for row in self.rows(names)[:8] if row["label"]):
            color = make_palette()[row["label"] % 256].tolist()
            _write_text(image, row["name"] or str(row["label"]), (4, 4 + line_index * _line_height(image)), color)


Result = Classification | Detections | Segmentation


def check_outputs(graph: Graph) -> None:
    """Check that at least one output contains classes, boxes, or a label for each pixel.

    Raises:
        GraphError: if no output can be interpreted; the message names the outputs and their shapes.
    """
    shapes = {name: graph.blobs[name].shape for name in graph.outputs}
    if not any(_detect_kind(graph, name, shape) for name, shape in shapes.items()):
        outputs = ", ".join(f"'{name}' {shape}" for name, shape in shapes.items())
        supported = "class scores (N, C), pixel scores (N, C, H, W) or SSD's boxes (1, 1, rows, 7)"
        message = f"no output has {supported}; the outputs are {outputs}; name a different blob with --output"
        raise GraphError(Problem(message, graph.file))


def find_tiny_map(graph: Graph) -> str | None:
    """Return the name of the first output with scores or labels of 2, 3 or 4 pixels, or None."""
    for name in graph.outputs:
        shape = graph.blobs[name].shape
        if _detect_kind(graph, name, shape) in ("pixels", "labels") and max(shape[2:]) == 2:
            return name
    return None


def find_logits(net: NetParameter) -> set[str]:
    """Return the names of the blobs with scores of which a loss of the net, in any phase, computes the softmax."""
    return {layer.bottom[0] for layer in net.layer if layer.bottom and _takes_logits(layer)}


def _takes_logits(layer: LayerParameter) -> bool:
    try:
        return type_of(layer).traits.takes_logits
    except GraphError:  # an unknown type, which this phase does not include
        return False


def _detect_kind(graph: Graph, name: str, shape: tuple[int, ...]) -> str:
    """Return the kind of an output: "boxes", "pixels" (scores), "labels" (of pixels), "classes", or "" if unknown.

    Args:
        graph: the net's graph.
        name: the output.
        shape: its shape in the pass to interpret, which may differ from the shape in the prototxt.
    """
    producer = next(layer for layer in reversed(graph.layers) if name in layer.tops)
    if len(shape) == 4 and shape[3] == 7 and producer.type.traits.pads_rows:
        return "boxes"
    label_axis = producer.type.traits.label_axis
    if label_axis is not None:  # its numbers are no scores
        is_map = len(shape) == 4 and shape[1] == 1 and producer.context.call(label_axis) in (1, -3)
        return "labels" if is_map else ""
    if len(shape) < 2 or shape[1] < 2:
        return ""
    return "classes" if math.prod(shape[2:]) == 1 else "pixels" if len(shape) == 4 else ""


def make_results(
    graph: Graph,
    outputs: Mapping[str, Any],
    sizes: Sequence[tuple[int, int]],
    *,
    top_k: int = 5,
    threshold: float = 0.5,
) -> list[list[Result]]:
    """Return the results for each image of a batch.

    Args:
        graph: the net's graph.
        outputs: the outputs of a batch.
        sizes: height and width of each image.
        top_k: the number of classes to return for a classification, those with the highest scores.
        threshold: the minimum score of a box.

    Raises:
        GraphError: if an output contains NaN, or its rows are not those of the images.
    """
    results: list[list[Result]] = [[] for _ in sizes]
    for name in graph.outputs:
        array = np.asarray(outputs[name])
        kind = _detect_kind(graph, name, array.shape)
        if np.isnan(array).any():
            message = f"the output '{name}' contains NaN: check the weights, and --mean and --scale"
            raise GraphError(Problem(message, graph.file))
        if kind not in ("", "boxes") and len(array) != len(sizes):
            message = (
                f"the output '{name}' has shape {array.shape} for {format_count(len(sizes), 'picture')}, so its rows "
                "do not belong to pictures; name a different blob with --output, or try --batch=1 for several pictures"
            )
            raise GraphError(Problem(message, graph.file))
        for i, (height, width) in enumerate(sizes):
            if kind == "boxes":
                rows = strip_padding(array)[0, 0]
                rows = rows[(rows[:, 0] == i) & (rows[:, 1] >= 0) & (rows[:, 2] >= threshold)]
                rows = rows[np.argsort(-rows[:, 2], kind="stable")]
                corners = np.rint(rows[:, 3:].clip(0, 1) * ([width, height] * 2)).astype(int).tolist()
                pairs = zip(rows[:, 1:3].tolist(), corners, strict=True)
                results[i].append(
                    Detections(name, tuple((int(label), score, tuple(box)) for (label, score), box in pairs))
                )
            elif kind in ("pixels", "labels"):
                labels = array[i].argmax(axis=0) if kind == "pixels" else array[i, 0]
                results[i].append(Segmentation(name, np.asarray(labels, np.int64)))
            elif kind == "classes":
                scores = array[i].ravel()
                best_labels = np.argsort(-scores, kind="stable")[:top_k]
                pairs = zip(best_labels.tolist(), scores[best_labels].tolist(), strict=True)
                sums_to_one = bool((scores >= 0).all() and abs(scores.sum() - 1) < 1e-3)
                results[i].append(Classification(name, tuple(pairs), "probability" if sums_to_one else "score"))
    return results


def format_result(result: Result, names: ClassNames) -> str:
    """Return a result as a text table for a terminal."""
    rows = result.rows(names)
    if not rows:
        return "nothing found"
    texts = [{key: _format_value(value) for key, value in row.items()} for row in rows]
    columns = [key for key in texts[0] if any(row[key] for row in texts)]
    return "\n".join(align_columns([columns, *([row[key] for key in columns] for row in texts)], 0))


def _format_value(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value))
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def make_palette() -> np.ndarray:
    """Return the colors of labels 0 to 255 as in PASCAL VOC, uint8 (256, 3) with channels B, G, R."""
    labels = np.arange(256)
    channels = [sum(((labels >> (3 * bit + channel)) & 1) << (7 - bit) for bit in range(3)) for channel in (2, 1, 0)]
    return np.stack(channels, axis=1).astype(np.uint8)


def draw_results(image: np.ndarray, results: Sequence[Result], names: ClassNames, file: Path) -> bytes:
    """Return an image, uint8 (H, W, 3) or (H, W), with results drawn on it, as the bytes of an image file.

    The extension of `file`, the path that the caller will write, determines the format. Small images are enlarged.

    Raises:
        CaffejaxError: if the file extension is not a known image format.
    """
    from ..debugging.visualize import encode_image, enlarge

    canvas = enlarge(np.repeat(np.atleast_3d(image), 3 if image.ndim == 2 else 1, axis=2), 384)
    for result in results:
        result.draw(canvas, names, len(canvas) // len(image))
    return encode_image(canvas, file.suffix)


def _line_height(image: np.ndarray) -> int:
    """Return the line height in pixels of text that is drawn on an image of this size."""
    return max(14, min(image.shape[:2]) // 24)


def _write_text(image: np.ndarray, text: str, corner: tuple[int, int], color: Sequence[int] = (0, 0, 0)) -> None:
    """Write white text on a `color` rectangle. Its upper left corner is as close to `corner` as the image allows."""
    import cv2

    line_height = _line_height(image)
    scale = line_height / _FONT_HEIGHT / 1.5
    text = text.encode("ascii", "replace").decode()
    (width, height), _ = cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, scale, 1)
    left = max(0, min(corner[0], image.shape[1] - width - 4))
    top = max(0, min(corner[1], image.shape[0] - line_height))
    cv2.rectangle(image, (left, top), (left + width + 4, top + line_height), tuple(color), cv2.FILLED)
    origin = (left + 2, top + (line_height + height) // 2)
    cv2.putText(image, text, origin, cv2.FONT_HERSHEY_SIMPLEX, scale, (255, 255, 255), 1, cv2.LINE_AA)
