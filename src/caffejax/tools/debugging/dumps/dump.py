"""Dumps of all arrays of one pass of a net, and their .npz files, in a format that plain Caffe can also write.

Arrays are named after layers and blobs:

    loss                      the sum of all losses, weighted
    input/<blob>              an input of the net
    param/<layer>/<i>         a parameter before the pass, including running statistics and shared parameters
    blob/<blob>               a blob after the forward pass
    top/<layer>/<blob>        a top that a later layer overwrites in place
    diff/<blob>               the diff of a blob's first value, after the backward pass
    top_diff/<layer>/<blob>   the diff of the top of a layer that works in place
    grad/<layer>/<i>          a parameter's diff, which is the sum over all layers that share it
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from ....base.errors import DataError, Problem, WeightsError
from ....core.checkpoints.array_files import read_npz, write_npz
from ....core.schema.blob_proto import Array


@dataclass(frozen=True)
class DumpedLayer:
    """A layer of the recorded net, from the dump's `meta`.

    Attributes:
        name: the layer's name. If several layers have the same name, a number is appended: `name#2`.
        type: the layer's type.
        bottoms, tops: the blobs that the layer reads and writes.
        random: whether the layer uses random numbers in this phase. Dumps of plain Caffe do not record this.
    """

    name: str
    type: str
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    random: bool = False


@dataclass(frozen=True)
class Dump:
    """The arrays of one pass of a net.

    Attributes:
        maker: the program that ran the net, with its version.
        net: the net's name.
        phase: "TRAIN" or "TEST".
        layers: the layers in the order of execution, including the Splits that Caffe inserts.
        arrays: the arrays by name. The docstring of the module lists the names.
        file: the file of the dump, for messages.
        is_isolated: whether each layer read its bottoms from a different dump, instead of the results of the layers
            before it.
    """

    maker: str
    net: str
    phase: str
    layers: tuple[DumpedLayer, ...]
    arrays: Mapping[str, Array]
    file: str | None = None
    is_isolated: bool = False

    @cached_property
    def _producers(self) -> dict[str, list[int]]:
        producers: dict[str, list[int]] = {}
        for i, layer in enumerate(self.layers):
            for top in dict.fromkeys(layer.tops):
                producers.setdefault(top, []).append(i)
        return producers

    @cached_property
    def has_backward(self) -> bool:
        """True if the dump contains diffs or gradients."""
        return any(name.startswith(("diff/", "grad/", "top_diff/")) for name in self.arrays)

    def arrays_of_kind(self, kind: str) -> dict[str, Array]:
        """Return the arrays whose names begin with `kind/`, such as "input/". Their keys omit `kind/`."""
        prefix = f"{kind}/"
        return {name.removeprefix(prefix): array for name, array in self.arrays.items() if name.startswith(prefix)}

    def blobs_of(self, kind: str, layer: str) -> dict[int, Array]:
        """Return a layer's arrays of the kind "param" or "grad", by number."""
        prefix = f"{kind}/{layer}/"
        numbered_arrays = ((n.removeprefix(prefix), array) for n, array in self.arrays.items() if n.startswith(prefix))
        return {int(number): array for number, array in numbered_arrays if number.isdecimal() and len(number) < 4}

    def top_value(self, index: int, blob: str) -> Array | None:
        """Return the value of the top `blob` of layer `layers[index]`, or None if it was not recorded."""
        overwritten = self.arrays.get(f"top/{self.layers[index].name}/{blob}")
        is_last = overwritten is None and self._producers[blob][-1] == index
        return self.arrays.get(f"blob/{blob}") if is_last else overwritten

    def top_diff(self, index: int, blob: str) -> Array | None:
        """Return the diff of the top `blob` of layer `layers[index]`, or None if it was not recorded."""
        in_place = self.arrays.get(f"top_diff/{self.layers[index].name}/{blob}")
        is_first = in_place is None and self._producers[blob][0] == index
        return self.arrays.get(f"diff/{blob}") if is_first else in_place

    def bottom_value(self, index: int, blob: str) -> Array | None:
        """Return the value of the bottom `blob` of layer `layers[index]`, or None if it was not recorded."""
        producer = self._producer_index(index, blob)
        return None if producer is None else self.top_value(producer, blob)

    def bottom_diff(self, index: int, blob: str) -> Array | None:
        """Return the diff of the bottom `blob` of layer `layers[index]`, or None if it was not recorded."""
        producer = self._producer_index(index, blob)
        return None if producer is None else self.top_diff(producer, blob)

    def _producer_index(self, index: int, blob: str) -> int | None:
        """Return the index of the layer that computed the bottom `blob` of layer `layers[index]`, or None."""
        return max((i for i in self._producers.get(blob, ()) if i < index), default=None)


FORMAT = "caffe dump 1"


def write_dump(path: str | os.PathLike[str], dump: Dump) -> None:
    """Write a dump to an .npz file.

    Raises:
        CaffejaxError: if the file cannot be written. An existing file then stays unchanged.
    """
    layers = [asdict(layer) for layer in dump.layers]
    meta = {"format": FORMAT, "maker": dump.maker, "net": dump.net, "phase": dump.phase, "layers": layers}
    write_npz(path, {"meta": np.asarray(json.dumps(meta)), **dump.arrays})


def read_dump(path: str | os.PathLike[str]) -> Dump:
    """Read a dump from an .npz file.

    Raises:
        DataError: if the file cannot be read or is not a dump.
    """
    file = os.fspath(path)
    arrays = _read_arrays(path)
    text = arrays.pop("meta", None)
    remedy = "create dumps with `caffejax collect` or scripts/collect_with_caffe.py"
    if text is None or text.dtype.kind not in "US" or text.ndim:
        raise DataError(Problem(f"is not a dump: it has no string named `meta`; {remedy}", file))
    try:
        meta = json.loads(bytes(text).decode() if text.dtype.kind == "S" else str(text))
        dump = _parse_meta(meta, arrays, file)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        reason = f"it lacks {error}" if isinstance(error, KeyError) else error
        raise DataError(Problem(f"is not a dump: its `meta` is invalid: {reason}; {remedy}", file)) from error
    _check_numbers(arrays, file)
    return dump


def read_inputs(path: str | os.PathLike[str], names: Collection[str]) -> dict[str, Array]:
    """Read a net's inputs from a dump or from any other .npz file.

    The inputs of a dump are its arrays `input/<blob>`. In other files, the arrays are named after the blobs.

    Args:
        path: an .npz file.
        names: the net's inputs. Other inputs of a dump are ignored.

    Raises:
        DataError: if the file cannot be read.
    """
    arrays = _read_arrays(path)
    dumped_inputs = {name.removeprefix("input/"): array for name, array in arrays.items() if name.startswith("input/")}
    inputs = {name: array for name, array in dumped_inputs.items() if name in names} if "meta" in arrays else arrays
    _check_numbers(inputs, os.fspath(path))
    return inputs


def _read_arrays(path: str | os.PathLike[str]) -> dict[str, Array]:
    try:
        return read_npz(path)
    except WeightsError as error:
        raise DataError(error.problems) from error


def _check_numbers(arrays: Mapping[str, Array], file: str) -> None:
    invalid = {name: array.dtype for name, array in arrays.items() if array.dtype.kind not in "biuf"}
    if invalid:
        raise DataError(
            Problem(f"'{name}' has dtype {dtype}, but must contain real numbers", file)
            for name, dtype in invalid.items()
        )


def _parse_meta(meta: Any, arrays: Mapping[str, Array], file: str) -> Dump:
    if meta["format"] != FORMAT:
        raise ValueError(f"format is {meta['format']!r}, not {FORMAT!r}")
    field_names = {f.name for f in fields(DumpedLayer)}
    if not isinstance(meta["layers"], list) or not all(isinstance(layer, dict) for layer in meta["layers"]):
        raise ValueError("its layers are not a list of objects")
    layer_settings = [{k: v for k, v in layer.items() if k in field_names} for layer in meta["layers"]]
    layers = tuple(
        DumpedLayer(**{**x, "bottoms": _check_names(x["bottoms"]), "tops": _check_names(x["tops"])})
        for x in layer_settings
    )
    _check_names([text for layer in layers for text in (layer.name, layer.type)] + [meta[k] for k in ("maker", "net")])
    layer_names: set[str] = set()
    for layer in layers:
        if layer.name in layer_names:
            raise ValueError(f"two layers are named '{layer.name}'")
        layer_names.add(layer.name)
    if meta["phase"] not in ("TRAIN", "TEST"):
        raise ValueError(f"phase is {meta['phase']!r}, not 'TRAIN' or 'TEST'")
    return Dump(meta["maker"], meta["net"], meta["phase"], layers, arrays, file)


def _check_names(names: Sequence[Any]) -> tuple[str, ...]:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{names!r} is not a list of names")
    return tuple(names)
