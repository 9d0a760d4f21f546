"""Caffe's .solverstate and .solverstate.h5 files.

They store the iteration, the update rule's history and the path of the weight file.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from h5py import Dataset, Group

from ...base.atomic_write import replace_file
from ...base.errors import Problem, WeightsError, raise_if_any
from ...base.paths import is_hdf5, read_bytes
from ...base.untrusted_hdf5 import SizeLimit, find_item
from ...base.varint import encode_varint
from ..schema import wire
from ..schema.blob_proto import Array, BlobError, decode_blob, encode_blob, measure_blobs
from .caffe_hdf5 import open_hdf5, read_arrays, replace_hdf5, write_arrays, write_string
from .caffemodel import check_size

_ITER_FIELD, _LEARNED_NET_FIELD, _HISTORY_FIELD, _CURRENT_STEP_FIELD = 1, 2, 3, 4
_RECORD_FIELD, _RECORD_NAME = 20000, "caffejax"  # a field of caffejax; Caffe skips unknown fields


@dataclass(frozen=True)
class SolverState:
    """The content of a .solverstate.

    Attributes:
        iteration: the number of updates so far.
        learned_net: the path of the weight file, relative to the working directory of the run that wrote it, or "".
        history: one float32 array for each learnable blob, in the net's order. AdaDelta and Adam have two arrays for
            each blob: the first arrays of all blobs come before the second arrays.
        current_step: the number of times that the policies `step` and `multistep` have reduced the learning rate.
        record: state that Caffe does not store, such as the random key and positions in the data, as JSON. "" if Caffe
            wrote the file.
    """

    iteration: int
    learned_net: str
    history: tuple[Array, ...]
    current_step: int = 0
    record: str = ""


def read_solverstate(path: str | os.PathLike[str]) -> SolverState:
    """Read a .solverstate or .solverstate.h5 file. The two formats are distinguished by content.

    Raises:
        WeightsError: if the file cannot be read, is not a solver state, or is damaged.
    """
    if is_hdf5(path):
        return _read_hdf5(path)
    data = read_bytes(path, WeightsError)
    try:
        return _decode(memoryview(data))
    except BlobError as error:  # the file is a .solverstate
        raise WeightsError(Problem(str(error), str(path))) from error
    except ValueError as error:
        raise WeightsError(Problem(f"not a .solverstate, or damaged or cut short: {error}", str(path))) from error


def write_solverstate(path: str | os.PathLike[str], state: SolverState) -> None:
    """Write a .solverstate file, or a .solverstate.h5 file if the name ends in .h5.

    Raises:
        WeightsError: if the file cannot be written, or would exceed protobuf's limit. An existing file then stays
            unchanged.
    """
    if os.fspath(path).endswith(".h5"):
        _write_hdf5(path, state)
        return
    size = measure_blobs(array.shape for array in state.history) + len(state.record.encode())
    remedy = "write a .solverstate.h5 (snapshot_format: HDF5 in the solver)"
    raise_if_any(WeightsError, check_size(size, "the .solverstate", str(path), remedy))
    with replace_file(path, WeightsError) as file:
        file.writelines([encode_varint(_ITER_FIELD << 3), encode_varint(state.iteration)])
        file.writelines(wire.encode_delimited(_LEARNED_NET_FIELD, state.learned_net.encode()))
        for array in state.history:
            file.writelines(wire.encode_delimited(_HISTORY_FIELD, *encode_blob(array)))
        file.writelines([encode_varint(_CURRENT_STEP_FIELD << 3), encode_varint(state.current_step)])
        if state.record:
            file.writelines(wire.encode_delimited(_RECORD_FIELD, state.record.encode()))


def _decode(data: memoryview) -> SolverState:
    integers = {_ITER_FIELD: 0, _CURRENT_STEP_FIELD: 0}
    strings, history, is_solver_state = {_LEARNED_NET_FIELD: "", _RECORD_FIELD: ""}, [], False
    for field, wire_type, value in wire.read_fields(data):
        if field in integers and isinstance(value, int):
            integers[field], is_solver_state = value & 0x7FFFFFFF, True  # an int32, never negative
        elif wire_type == wire.DELIMITED and not isinstance(value, int) and field in strings:
            strings[field] = bytes(value).decode()
        elif wire_type == wire.DELIMITED and not isinstance(value, int) and field == _HISTORY_FIELD:
            try:
                history.append(decode_blob(value))
            except ValueError as error:
                raise type(error)(f"history blob {len(history)}: {error}") from error
    if not is_solver_state:
        raise ValueError("it has no iteration")
    (iteration, current_step), (learned_net, record) = integers.values(), strings.values()
    return SolverState(iteration, learned_net, tuple(history), current_step, record)


def _read_hdf5(path: str | os.PathLike[str]) -> SolverState:
    with open_hdf5(path, ".solverstate.h5") as file:
        names = "history", "iter", "learned_net", "current_step", _RECORD_NAME
        fields = {name: find_item(file, name) for name in names}
        if not isinstance(fields["history"], Group) or fields["iter"] is None:
            hint = " (these are weights: name the solver state instead)" if find_item(file, "data") else ""
            raise WeightsError(Problem(f"has no history{hint}; is it a .solverstate.h5?", str(path)))
        size_limit = SizeLimit(file)
        for data_set in fields.values():
            if isinstance(data_set, Dataset):
                size_limit.check(data_set)
        history = read_arrays(fields["history"], size_limit)
        missing = [i for i, blob in enumerate(history) if blob is None]
        if missing:
            raise ValueError(f"{len(missing)} of {len(history)} history blobs are missing, first number {missing[0]}")
        return SolverState(
            iteration=_read_integer(fields["iter"]),
            learned_net=_read_string(fields["learned_net"]) if fields["learned_net"] else "",
            history=tuple(blob for blob in history if blob is not None),
            current_step=_read_integer(fields["current_step"]) if fields["current_step"] else 0,
            record=_read_string(fields[_RECORD_NAME]) if fields[_RECORD_NAME] else "",
        )


def _write_hdf5(path: str | os.PathLike[str], state: SolverState) -> None:
    with replace_hdf5(path) as file:
        file.create_dataset("iter", data=np.array([state.iteration], np.int32))
        write_string(file, "learned_net", state.learned_net)
        file.create_dataset("current_step", data=np.array([state.current_step], np.int32))
        if state.record:
            write_string(file, _RECORD_NAME, state.record)
        write_arrays(file.create_group("history"), enumerate(state.history))


def _read_integer(data_set: Any) -> int:
    values = np.asarray(data_set[()])
    if values.size != 1 or values.dtype.kind not in "iu" or not 0 <= (value := int(values.item())) < 2**31:
        raise ValueError(f"{data_set.name} is not one integer from 0 to 2**31 - 1")
    return value


def _read_string(data_set: Any) -> str:
    value = data_set[()]
    if not isinstance(value, bytes):
        raise ValueError(f"{data_set.name} is not a string")
    return value.decode()
