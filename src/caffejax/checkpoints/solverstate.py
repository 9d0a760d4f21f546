"""Caffe's .solverstate and .solverstate.h5 files: what an update rule remembers, and where the weights are."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from h5py import Dataset, Group

from ..atomic import replacing
from ..errors import Problem, WeightsError
from ..schema import wire
from ..schema.blob_proto import Array, decode_blob, encode_blob, read_bytes
from ..untrusted_hdf5 import Allowance, find
from .caffe_hdf5 import is_hdf5, open_hdf5, read_arrays, replace_hdf5, write_arrays, write_string

_ITER, _LEARNED_NET, _HISTORY, _CURRENT_STEP = 1, 2, 3, 4
_RECORD, _RECORD_NAME = 20000, "caffejax"  # ours; Caffe passes over what it does not know


@dataclass(frozen=True)
class SolverState:
    """A .solverstate.

    Attributes:
        iteration: updates done so far.
        learned_net: the path of the weights, from the working directory of the run that wrote it; "" if none.
        history: one array per learnable blob, in the net's order, and for AdaDelta and Adam once more.
        current_step: the steps that the learning rate had behind it.
        record: what Caffe does not keep (keys, places in the data), as JSON; "" in Caffe's own files.
    """

    iteration: int
    learned_net: str
    history: tuple[Array, ...]
    current_step: int = 0
    record: str = ""


def read_solverstate(path: str | os.PathLike[str]) -> SolverState:
    """Read a .solverstate or a .solverstate.h5; which one, its content says.

    Raises:
        WeightsError: for a file that cannot be read, is none, or is damaged.
    """
    if is_hdf5(path):
        return _read_hdf5(path)
    data = read_bytes(path)
    try:
        return _decode(memoryview(data))
    except ValueError as error:
        raise WeightsError(Problem(f"no .solverstate, or damaged or cut short: {error}", str(path))) from error


def write_solverstate(path: str | os.PathLike[str], state: SolverState) -> None:
    """Write a .solverstate, or where the name ends in .h5 a .solverstate.h5.

    Raises:
        WeightsError: if the file cannot be written; what was there before stays whole.
    """
    if os.fspath(path).endswith(".h5"):
        _write_hdf5(path, state)
        return
    with replacing(path, WeightsError) as file:
        file.writelines([wire.encode_varint(_ITER << 3), wire.encode_varint(state.iteration)])
        file.writelines(wire.encode_delimited(_LEARNED_NET, state.learned_net.encode()))
        for array in state.history:
            file.writelines(wire.encode_delimited(_HISTORY, *encode_blob(array)))
        file.writelines([wire.encode_varint(_CURRENT_STEP << 3), wire.encode_varint(state.current_step)])
        if state.record:
            file.writelines(wire.encode_delimited(_RECORD, state.record.encode()))


def _decode(data: memoryview) -> SolverState:
    numbers = {_ITER: 0, _CURRENT_STEP: 0}
    texts, history, found = {_LEARNED_NET: "", _RECORD: ""}, [], False
    for number, kind, value in wire.read_fields(data):
        if number in numbers and isinstance(value, int):
            numbers[number], found = value & 0x7FFFFFFF, True  # an int32, never negative
        elif kind == wire.DELIMITED and not isinstance(value, int) and number in texts:
            texts[number] = bytes(value).decode()
        elif kind == wire.DELIMITED and not isinstance(value, int) and number == _HISTORY:
            try:
                history.append(decode_blob(value))
            except ValueError as error:
                raise ValueError(f"history blob {len(history)}: {error}") from error
    if not found:
        raise ValueError("it has no iteration")
    return SolverState(numbers[_ITER], texts[_LEARNED_NET], tuple(history), numbers[_CURRENT_STEP], texts[_RECORD])


def _read_hdf5(path: str | os.PathLike[str]) -> SolverState:
    with open_hdf5(path, ".solverstate.h5") as file:
        found = {name: find(file, name) for name in ("history", "iter", "learned_net", "current_step", _RECORD_NAME)}
        if not isinstance(found["history"], Group) or found["iter"] is None:
            hint = " (these are weights: name the solver state instead)" if find(file, "data") else ""
            raise WeightsError(Problem(f"has no history{hint}; is it a .solverstate.h5?", str(path)))
        allowance = Allowance(file)
        for data_set in found.values():
            if isinstance(data_set, Dataset):
                allowance.check(data_set)
        history = read_arrays(found["history"], allowance)
        if any(blob is None for blob in history):
            raise ValueError("history blobs are missing")
        return SolverState(
            iteration=_integer(found["iter"]),
            learned_net=_string(found["learned_net"]) if found["learned_net"] else "",
            history=tuple(blob for blob in history if blob is not None),
            current_step=_integer(found["current_step"]) if found["current_step"] else 0,
            record=_string(found[_RECORD_NAME]) if found[_RECORD_NAME] else "",
        )


def _write_hdf5(path: str | os.PathLike[str], state: SolverState) -> None:
    with replace_hdf5(path) as file:
        file.create_dataset("iter", data=np.array([state.iteration], np.int32))
        write_string(file, "learned_net", state.learned_net)
        file.create_dataset("current_step", data=np.array([state.current_step], np.int32))
        if state.record:
            write_string(file, _RECORD_NAME, state.record)
        write_arrays(file.create_group("history"), enumerate(state.history))


def _integer(data_set: Any) -> int:
    values = np.asarray(data_set[()])
    if values.size != 1 or values.dtype.kind not in "iu" or not 0 <= (value := int(values.item())) < 2**31:
        raise ValueError(f"{data_set.name} is not one number from 0 on of 31 bits")
    return value


def _string(data_set: Any) -> str:
    value = data_set[()]
    if not isinstance(value, bytes):
        raise ValueError(f"{data_set.name} is not a string")
    return value.decode()
