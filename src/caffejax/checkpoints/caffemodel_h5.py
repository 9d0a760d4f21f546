"""Caffe's .caffemodel.h5 files: `/data/<layer>/<i>`, and `/diff/<layer>/<i>` with snapshot_diff.

A blob that a layer shares but does not own is left out. Layers without blobs are empty groups. HDF5 takes a
slash in a layer's name for a group in a group; Caffe itself stops at such names, here they work.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from h5py import Group
from numpy.typing import ArrayLike

from ..errors import Problem, WeightsError
from ..hdf5 import Allowance, find
from ..schema.blob_proto import Array
from .hdf5 import blob_groups, open_hdf5, read_arrays, replace_hdf5, write_arrays

Stored = dict[str, tuple[Array | None, ...]]


def read_caffemodel_h5(path: str | os.PathLike[str], section: str = "data") -> Stored:
    """Read the weights of a net.

    Args:
        path: the file.
        section: "data", or "diff" for gradients where the file has them.

    Returns:
        Blobs by layer name, in the file's order; None for a blob that the file leaves out before others.

    Raises:
        WeightsError: for a file that cannot be read, is none, or is damaged.
    """
    with open_hdf5(path, ".caffemodel.h5") as file:
        found = find(file, section)
        if not isinstance(found, Group):
            hint = " (this is a solver state: name the weights instead)" if find(file, "history") else ""
            raise WeightsError(Problem(f"has no group '{section}'{hint}; is it a .caffemodel.h5?", str(path)))
        allowance = Allowance(file)
        return {name: read_arrays(group, allowance) for name, group in blob_groups(found)}


def write_caffemodel_h5(
    path: str | os.PathLike[str],
    blobs: Mapping[str, Sequence[ArrayLike | None]],
    diffs: Mapping[str, Sequence[ArrayLike]] | None = None,
    layers: Collection[str] = (),
) -> None:
    """Write weights as Caffe does. A file that is there already is replaced once the new one is complete.

    Args:
        path: the file.
        blobs: by layer name; None for one to leave out.
        diffs: gradients to store beside the blobs; of all blobs, left out or not.
        layers: names of all layers, to have those without blobs in the file too.

    Raises:
        WeightsError: if the file cannot be written, or for names that one file cannot hold.
    """
    names = [*layers, *(name for name in {**blobs, **(diffs or {})} if name not in layers)]
    wrong = [name for name in dict.fromkeys(names) if names.count(name) > 1 or not _is_path(name)]
    if wrong:
        message = "HDF5 cannot hold a layer of this name, or several; rename it, or write a .caffemodel"
        raise WeightsError(Problem(message, str(path), layer=name) for name in wrong)
    with replace_hdf5(path) as file:
        for section, tree in (("data", blobs), ("diff", diffs)):
            if tree is None:
                continue
            top = file.create_group(section)
            for name in names:
                values = enumerate(tree.get(name, ()))
                write_arrays(top.require_group(name), ((i, np.asarray(v)) for i, v in values if v is not None))


def _is_path(name: str) -> bool:
    """Return whether a name leads to a group of its own."""
    return "\0" not in name and not {"", "."} & set(name.split("/"))
