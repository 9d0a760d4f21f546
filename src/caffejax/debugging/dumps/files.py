"""Dumps in .npz files: the numbers under their names, and `meta`, a string of JSON with the rest of a `Dump`."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from ...checkpoints.npz import read_npz, write_npz
from ...errors import DataError, Problem, WeightsError
from ...schema.blob_proto import Array
from .dump import Dump, DumpedLayer

FORMAT = "caffe dump 1"


def write_dump(path: str | os.PathLike[str], dump: Dump) -> None:
    """Write a dump.

    Raises:
        CaffejaxError: if it cannot be written; what was there before stays whole.
    """
    layers = [asdict(layer) for layer in dump.layers]
    meta = {"format": FORMAT, "maker": dump.maker, "net": dump.net, "phase": dump.phase, "layers": layers}
    write_npz(path, {"meta": np.asarray(json.dumps(meta)), **dump.arrays})


def read_dump(path: str | os.PathLike[str]) -> Dump:
    """Read a dump.

    Raises:
        DataError: for a file that cannot be read or is none, naming all that is wrong with it.
    """
    file = os.fspath(path)
    arrays = _arrays(path)
    text = arrays.pop("meta", None)
    remedy = "make dumps with `caffejax collect` or scripts/collect_with_caffe.py"
    if text is None or text.dtype.kind not in "US" or text.ndim:
        raise DataError(Problem(f"is no dump: it has no member `meta` that is a string; {remedy}", file))
    try:
        meta = json.loads(bytes(text).decode() if text.dtype.kind == "S" else str(text))
        dump = _from_meta(meta, arrays, file)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DataError(Problem(f"is no dump: its `meta` is not as it should be: {error!r}; {remedy}", file)) from error
    _check_numbers(arrays, file)
    return dump


def read_inputs(path: str | os.PathLike[str], names: Collection[str]) -> dict[str, Array]:
    """Read what to feed a net: the `input/<blob>` of a dump, or arrays by the blobs' own names.

    Args:
        path: an .npz file.
        names: what the net is fed; other inputs of a dump are left out.

    Raises:
        DataError: if it cannot be read.
    """
    arrays = _arrays(path)
    dumped = {name.removeprefix("input/"): array for name, array in arrays.items() if name.startswith("input/")}
    found = {name: array for name, array in dumped.items() if name in names} if "meta" in arrays else arrays
    _check_numbers(found, os.fspath(path))
    return found


def _arrays(path: str | os.PathLike[str]) -> dict[str, Array]:
    try:
        return read_npz(path)
    except WeightsError as error:
        raise DataError(error.problems) from error


def _check_numbers(arrays: Mapping[str, Array], file: str) -> None:
    wrong = {name: array.dtype for name, array in arrays.items() if array.dtype.kind not in "biuf"}
    if wrong:
        raise DataError(Problem(f"'{name}' holds {dtype}, not real numbers", file) for name, dtype in wrong.items())


def _from_meta(meta: Any, arrays: Mapping[str, Array], file: str) -> Dump:
    if meta["format"] != FORMAT:
        raise ValueError(f"format is {meta['format']!r}, not {FORMAT!r}")
    known = {f.name for f in fields(DumpedLayer)}
    if not isinstance(meta["layers"], list) or not all(isinstance(layer, dict) for layer in meta["layers"]):
        raise ValueError("its layers are no list of objects")
    layers = [{k: v for k, v in layer.items() if k in known} for layer in meta["layers"]]
    found = tuple(DumpedLayer(**{**x, "bottoms": _names(x["bottoms"]), "tops": _names(x["tops"])}) for x in layers)
    _names([text for layer in found for text in (layer.name, layer.type)] + [meta[k] for k in ("maker", "net")])
    if len({layer.name for layer in found}) < len(found):
        raise ValueError("two layers have the same name")
    if meta["phase"] not in ("TRAIN", "TEST"):
        raise ValueError(f"phase is {meta['phase']!r}")
    return Dump(meta["maker"], meta["net"], meta["phase"], found, arrays, file)


def _names(names: Sequence[Any]) -> tuple[str, ...]:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{names!r} are no names")
    return tuple(names)
