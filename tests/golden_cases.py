"""The recorded cases of layers: BVLC Caffe's and its forks'."""

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from caffejax.core.layers import LayerType, Variants, layer_types, type_of
from caffejax.core.layers.packages import list_own_packages
from caffejax.core.schema import read_net

GOLDEN = Path(__file__).parent / "golden"
FORKS = Path(__file__).parent / "forks"
HAS_FORKS = bool(list_own_packages()) and FORKS.is_dir()  # core is tested without them, too
FOLDERS = (GOLDEN / "layers", *(sorted(FORKS.glob("*/recorded")) if HAS_FORKS else ()))


def _load_recorded() -> list[dict[str, Any]]:
    """All recorded cases, each with its path without the suffix."""
    return [
        {**case, "path": folder / case["type"] / case["case"]}
        for folder in FOLDERS
        for case in json.loads((folder / "manifest.json").read_text())
    ]


RECORDED_CASES = [case for case in _load_recorded() if not case.get("run_in_folder")]  # those have tests of their own
REJECTED_CASES = [case for case in RECORDED_CASES if case.get("rejected")]
ACCEPTED_CASES = [case for case in RECORDED_CASES if not case.get("rejected")]


# types of BVLC's whose programs differ between kernels="fast" and "reference"; jax_transforms tests that no other does
KERNEL_TYPES = set(
    """AbsVal BNLL BatchNorm Bias Clip Concat Convolution Deconvolution ELU Eltwise Exp Filter HDF5Output InnerProduct
    LRN Log Pooling Power Python ReLU Scale Sigmoid Split Swish TanH Threshold""".split()
)

COORDINATES = {"rois", "gt", "im_info"}  # bottoms in pixels, of which bfloat16 cannot tell one from the next


def correct_arrays(case: dict[str, Any], arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A case's arrays, with other numbers where those recorded are known not to be the fork's: docs/differences.md."""
    name = format_case_id(case)
    if name.startswith("SmoothL1LossOHEM-"):  # recorded is the first row only, the fork's kernel goes through all
        d = (arrays["bottom/pred"] - arrays["bottom/target"]) * arrays.get("bottom/inside_w", 1)
        losses = np.where(np.abs(d) < 1, 0.5 * d * d, np.abs(d) - 0.5).sum(1, keepdims=True)
        np.testing.assert_allclose(losses.ravel()[0], arrays["top/per_roi"].ravel()[0], rtol=1e-5)
        arrays["top/per_roi"] = losses
    return arrays


def is_fork_case(case: dict[str, Any]) -> bool:
    """Return whether a case is a fork's."""
    return case["path"].is_relative_to(FORKS)


def make_case_params(cases: dict[str, dict[str, Any]]) -> list[Any]:
    """Return the names of cases to parametrise a test; the cases of forks' many types are marked long."""
    return [pytest.param(name, marks=[pytest.mark.long] if is_fork_case(case) else []) for name, case in cases.items()]


def format_case_id(case: dict[str, Any]) -> str:
    return f"{case['type']}-{case['case']}" if "type" in case else Path(case["path"]).name


@functools.cache
def _read_recorded_layer(path: Path) -> Any:
    return next(layer for layer in read_net(path).layer if layer.name == "layer")


def get_layer_type_of_case(case: dict[str, Any]) -> LayerType:
    """The type, and of a type with variants the variant, of a recorded case."""
    return type_of(_read_recorded_layer(case["path"].with_suffix(".prototxt")))


def find_first_cases(cases: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The first case of each type, by its name, and of each variant, by name and variant."""
    result: dict[str, dict[str, Any]] = {}
    for case in cases:
        implementation = layer_types()[case["type"]].implementation
        variant = (
            implementation.select(_read_recorded_layer(case["path"].with_suffix(".prototxt")))
            if isinstance(implementation, Variants)
            else ""
        )
        result.setdefault(" ".join(filter(None, [case["type"], variant])), case)
    return result
