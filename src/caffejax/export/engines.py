"""The engines that run ONNX models, and the form of a model that each of them takes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Engine:
    """An engine, and the form of the file that `caffejax export --for` chooses for it.

    Attributes:
        title: the engine's name in messages.
        package: the Python package with which `run_engine` runs models, or None if it cannot run them.
        opset: the version of ONNX's operator set.
        pad_rows: whether outputs keep rows of padding, because shapes must not depend on data.
        fixed_batch: whether the batch size is fixed. Without `--batch` it is then the net's.
        lacks: operators that are not written: the engine has none, or computes other numbers or shapes with them.
        pads_pointwise: whether a Conv with a kernel of one element may have padding.
        max_selected: the largest number of values that Where selects from at once, or None for any number.
        max_sorted: the largest number of values that TopK sorts, or None for any number.
        scatters_into_fewer: whether ScatterElements takes more indices than there are values to change.
        sorts_stably: whether TopK keeps the order of equal values, as ONNX demands of the indices.
        note: why the form is what it is, for the documentation.
    """

    title: str
    package: str | None
    opset: int = 18
    pad_rows: bool = False
    fixed_batch: bool = False
    lacks: frozenset[str] = frozenset()
    pads_pointwise: bool = True
    max_selected: int | None = None
    max_sorted: int | None = None
    scatters_into_fewer: bool = True
    sorts_stably: bool = True
    note: str = ""


ANY_ENGINE = Engine("ONNX", None)
ENGINES = {
    "onnxruntime": Engine("ONNX Runtime", "onnxruntime", note="has all that the export writes"),
    "openvino": Engine(
        "OpenVINO",
        "openvino",
        max_sorted=46340,  # the square is below 2**31: the engine computes int64 as int32
        sorts_stably=False,
        note="sorts equal values in any order, so that a second sort restores their order",
    ),
    "opencv5": Engine(
        "OpenCV 5",
        "cv2",
        pad_rows=True,
        fixed_batch=True,
        lacks=frozenset({"Loop", "If", "Einsum"}),
        pads_pointwise=False,  # it reads memory that is not the input's
        scatters_into_fewer=False,
        max_selected=1 << 23,  # of more it computes other numbers in several threads
        note="refuses shapes that depend on data, and Gather in a Loop gives other shapes, so that loops are unrolled",
    ),
    "tensorrt": Engine(
        "TensorRT",
        None,
        pad_rows=True,
        fixed_batch=True,
        lacks=frozenset({"BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"}),
        max_sorted=3839,
        note="by the list of operators of TensorRT 10.0; not run",
    ),
}
