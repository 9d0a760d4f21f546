"""Functions that find model files in folders, and tell nets and solvers apart by their content."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path

from ...core.schema.caffe_pb2 import NetParameter, SolverParameter
from ...core.schema.tokens import END, Tokens
from .check_report import Kind

_MODEL_EXTENSIONS = (".prototxt", ".pt", ".pbtxt")
_CAFFEMODEL_EXTENSIONS = (".caffemodel", ".caffemodel.h5")
_WEIGHTS_EXTENSIONS = (*_CAFFEMODEL_EXTENSIONS, ".h5")
_NET_FIELDS = {"layer", "layers", "input", "input_shape", "input_dim"}
_MIN_SIMILARITY = 0.75  # the ratio of difflib; "lyer" and "layer" have 0.89, "label" and "layer" 0.6


def find_model_files(paths: Iterable[str | os.PathLike[str]]) -> Iterator[Path]:
    """Yield each path that is a file, and all prototxt files in each path that is a folder, without duplicates."""
    yielded_paths: set[Path] = set()
    for path in map(Path, paths):
        files = (
            sorted(p for p in path.rglob("*") if p.suffix in _MODEL_EXTENSIONS and p.is_file())
            if path.is_dir()
            else [path]
        )
        for file in files:
            if file not in yielded_paths:
                yielded_paths.add(file)
                yield file


def detect_kind(text: str) -> Kind:
    """Return the kind of a text ("net", "solver" or "other") from its top-level field names.

    A text with layers or inputs is a net; otherwise a text with a field that only solvers have is a solver. If it has
    neither, but has a field name that resembles `layer` or `input`, it is assumed to be a net with a typo.
    """
    solver_fields = set(SolverParameter.DESCRIPTOR.fields_by_name) - set(NetParameter.DESCRIPTOR.fields_by_name)
    names = set(_top_level_names(text))
    if names & _NET_FIELDS:
        return "net"
    if names & solver_fields:
        return "solver"
    has_typo = any(get_close_matches(name.lower(), _NET_FIELDS, 1, _MIN_SIMILARITY) for name in names)
    return "net" if has_typo else "other"


def is_label_map(text: str) -> bool:
    """Return whether a text has only items at its top level, as the label maps of SSD and TensorFlow."""
    return set(_top_level_names(text)) == {"item"}


def find_weights(file: Path) -> list[Path]:
    """Return the weights files that have the same folder and base name as a net's file."""
    return [path for extension in _WEIGHTS_EXTENSIONS if (path := file.with_name(file.stem + extension)).is_file()]


def find_weights_without_net(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Return the .caffemodel files that `find_weights` finds for no file beside them.

    Args:
        paths: folders, which are searched with their subfolders, and files, whose folders are searched.
    """
    weights: set[Path] = set()
    for path in map(Path, paths):
        files = path.rglob("*") if path.is_dir() else path.parent.glob("*")
        weights.update(file for file in files if file.name.endswith(_CAFFEMODEL_EXTENSIONS) and file.is_file())
    return sorted(
        w
        for w in weights
        if not any(w.with_name(_strip_extension(w) + extension).is_file() for extension in _MODEL_EXTENSIONS)
    )


def _strip_extension(weights: Path) -> str:
    return next(weights.name.removesuffix(e) for e in reversed(_CAFFEMODEL_EXTENSIONS) if weights.name.endswith(e))


def _top_level_names(text: str) -> Iterator[str]:
    depth = 0
    tokens = Tokens(text)
    for token, next_token in zip(tokens, [*tokens[1:], END], strict=True):
        if token in ("{", "<", "["):
            depth += 1
        elif token in ("}", ">", "]"):
            depth = max(0, depth - 1)  # a text whose beginning is missing has more closing brackets
        elif depth == 0 and next_token in (":", "{", "<"):
            yield token
