"""Frozen nets in bfloat16 and int8: the number type of each value of a oneDNN program.

In int8, a value is stored as an integer, which is multiplied by a float32 number, its step. Each blob has one step,
which is computed from the range of the blob on calibration batches. A weight has one step for each output. Sums are
exact in int32, and each result is rounded to a multiple of the step of its blob.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal

import numpy as np

from ...base.config import NetConfig
from ...base.errors import CaffejaxError
from ...base.glog import log
from ...core.ops import compilation
from ...core.program.frozen import check_precision
from ..kernels import onednn, onednn_program
from ..kernels.onednn_program import FieldValue, Operation, Shape

Ranges = Mapping[str, tuple[float, float]]  # the minimum and maximum of each blob
_MIN_LARGEST = 1e-30  # used as the maximum of a blob of zeros, so that its step is not 0
_CPU_FEATURES = {"bfloat16": "AVX512-BF16", "int8": "AVX512-VNNI and AVX-VNNI"}
_WEIGHT_OPERATIONS = {"bfloat16": ("convolution", "deconvolution", "dense"), "int8": ("convolution", "dense")}
# operations whose results consist of numbers of their inputs
_NUMBER_PRESERVING_OPERATIONS = ("max", "concat", "reshape")
_TYPE_PRESERVING_OPERATIONS = {
    "bfloat16": (*_NUMBER_PRESERVING_OPERATIONS, "mean", "padded_mean", "lrn", "apply"),
    "int8": _NUMBER_PRESERVING_OPERATIONS,
    "uint8": _NUMBER_PRESERVING_OPERATIONS,
}


@dataclass(frozen=True)
class LowPrecision:
    """A number type of less than 32 bits, in which a oneDNN program computes.

    Attributes:
        kind: the number type.
        ranges: for int8, the minimum and maximum of each blob by name. Blobs without a range are float32.
    """

    kind: Literal["bfloat16", "int8"]
    ranges: Ranges


@dataclass(frozen=True)
class _NumberType:
    """The number type of a value and, if it is "int8" or "uint8", its step; see the module's docstring."""

    name: str = "float32"
    step: float = 0


def resolve_precision(precision: str, config: NetConfig) -> tuple[NetConfig, Literal["bfloat16", "int8"] | None]:
    """Return the settings of a frozen net for a precision, and the number type of its oneDNN programs.

    The number type is None if no oneDNN program computes in low precision. If this processor or platform does not
    support the number type, a warning is logged once, and the net computes in float32. On platforms other than CPUs,
    XLA computes in bfloat16.

    Args:
        precision: "float32", "tf32", "bfloat16" or "int8".
        config: the settings of the net. In the returned settings, `precision` is replaced.

    Raises:
        CaffejaxError: if the precision is unknown.
    """
    check_precision(precision)
    if precision != "bfloat16" and precision != "int8":
        return replace(config, precision=precision), None  # type: ignore[arg-type]
    if precision == "bfloat16" and not compilation.runs_on_cpu():
        return replace(config, precision="bfloat16"), None
    reason = _find_obstacle(precision, config)
    if reason is not None:
        _warn(f"the net is frozen in float32 instead of {precision}: {reason}")
    return replace(config, precision="float32"), None if reason else precision  # type: ignore[return-value]


def _find_obstacle(precision: str, config: NetConfig) -> str | None:
    if not compilation.runs_on_cpu():
        return f"{precision} is supported only on CPUs"
    if config.kernels != "fast" or not onednn_program.is_available():
        return f'{precision} needs oneDNN and kernels="fast"'
    if not onednn.has_instructions(precision):
        return f"this processor lacks {_CPU_FEATURES[precision]}"
    return None


@functools.cache
def _warn(text: str) -> None:
    log.warning("%s", text)


def measure_ranges(batches: Iterable[Mapping[str, Any]]) -> dict[str, tuple[float, float]]:
    """Return the minimum and maximum of each float32 blob over batches, by name.

    Args:
        batches: all blobs of each batch, by name.

    Raises:
        CaffejaxError: if a blob contains NaN or infinity. The message names the first such batch and its blobs.
    """
    ranges: dict[str, tuple[float, float]] = {}
    for i, blobs in enumerate(batches):
        arrays = {name: np.asarray(blob) for name, blob in blobs.items()}
        floats = {name: array for name, array in arrays.items() if array.dtype == np.float32 and array.size}
        batch_ranges = {name: (float(array.min()), float(array.max())) for name, array in floats.items()}
        if invalid_names := [name for name, pair in batch_ranges.items() if not np.all(np.isfinite(pair))]:
            names_text = ", ".join(map(repr, invalid_names[:3])) + (", ..." if len(invalid_names) > 3 else "")
            raise CaffejaxError(
                f"batch {i} of calibration gives NaN or infinity in {names_text}; int8 needs finite numbers"
            )
        for name, (low, high) in batch_ranges.items():
            smallest, largest = ranges.get(name, (low, high))
            ranges[name] = min(low, smallest), max(high, largest)
    return ranges


def convert_precision(
    low_precision: LowPrecision,
    argument_shapes: Sequence[Shape],
    operations: Sequence[Operation],
    weights: list[Any],
    result_numbers: Sequence[int],
    blob_names: Mapping[int, str],
) -> tuple[list[Operation], list[int]]:
    """Choose the type of each value of a program, and insert conversions.

    Args:
        low_precision: the number type, and for int8 the ranges.
        argument_shapes: the shapes of the program's arguments, which are float32.
        operations: the operations of the program.
        weights: the weights. In this list, quantized weights replace the original weights, and steps are appended.
        result_numbers: the numbers of the values that the program returns, which are float32.
        blob_names: the blob name of each value, by the value's number.

    Returns:
        The new operations, and the new numbers of the results.
    """
    blob_names = dict(blob_names)
    for number, operation in enumerate(operations, len(argument_shapes)):
        if _only_subsamples(operation) and operation.values("in")[0] in blob_names:
            blob_names.setdefault(number, blob_names[operation.values("in")[0]])
    number_types = _choose_number_types(low_precision, len(argument_shapes), operations, blob_names)
    return _ProgramConverter(argument_shapes, operations, weights, number_types).convert(result_numbers)


def _choose_number_types(
    low_precision: LowPrecision,
    num_arguments: int,
    operations: Sequence[Operation],
    blob_names: Mapping[int, str],
) -> list[_NumberType]:
    """Return the number type and step of each value, which is float32 if no operation reads it in low precision.

    Args:
        low_precision: the number type, and for int8 the ranges.
        num_arguments: the number of arguments of the program, which is also the number of the first operation's result.
        operations: the operations of the program.
        blob_names: the blob name of each value, by the value's number.
    """
    num_values = num_arguments + len(operations)
    # values with a common step have the same root: the inputs and results of operations that keep numbers
    parents = list(range(num_values))

    def find_root(value: int) -> int:
        while parents[value] != value:
            value = parents[value]
        return value

    for number, o in enumerate(operations, num_arguments):
        if _keeps_numbers(o):
            for value in o.values("in"):
                parents[find_root(value)] = find_root(number)
    number_type_of = _make_number_type_lookup(
        low_precision,
        [[n for n in range(num_values) if find_root(n) == find_root(value)] for value in range(num_values)],
        blob_names,
    )
    is_needed = [False] * num_values
    for number, o in reversed(list(enumerate(operations, num_arguments))):
        if o.name in _WEIGHT_OPERATIONS[low_precision.kind]:
            inputs = [n for n in o.values("in") if number_type_of(n) is not None]
            added_values = o.epilogue_inputs if is_needed[number] and low_precision.kind == "int8" else ()
        else:
            inputs = (
                list(o.values("in"))
                if (o.name in _TYPE_PRESERVING_OPERATIONS[low_precision.kind] or _only_subsamples(o))
                and is_needed[number]
                else []
            )
            added_values = ()
        for value in chain(inputs, added_values):
            is_needed[value] = number_type_of(value) is not None
    return [(number_type_of(n) or _NumberType()) if is_needed[n] else _NumberType() for n in range(num_values)]


def _make_number_type_lookup(
    low_precision: LowPrecision, groups: Sequence[Sequence[int]], blob_names: Mapping[int, str]
) -> Callable[[int], _NumberType | None]:
    """Return a function that takes the number of a value, and returns the value's number type in low precision.

    The function returns None if the range of the value is not known.

    Args:
        low_precision: the number type, and for int8 the ranges.
        groups: for each value, the numbers of the values that must have the same step.
        blob_names: the blob name of each value, by the value's number.
    """

    def number_type_of(value: int) -> _NumberType | None:
        if low_precision.kind == "bfloat16":
            return _NumberType("bfloat16")
        ranges = [
            low_precision.ranges[blob_names[n]] for n in groups[value] if blob_names.get(n) in low_precision.ranges
        ]
        if not ranges or blob_names.get(value) not in low_precision.ranges:
            return None
        smallest, largest = min(r[0] for r in ranges), max(r[1] for r in ranges)
        if smallest >= 0:
            return _NumberType("uint8", max(largest, _MIN_LARGEST) / 255)
        return _NumberType("int8", max(-smallest, largest) / 127)

    return number_type_of


def _keeps_numbers(o: Operation) -> bool:
    return o.name in _NUMBER_PRESERVING_OPERATIONS or _only_subsamples(o)


def _only_subsamples(o: Operation) -> bool:
    """Return whether an operation is a mean over windows of one cell. It selects cells without changing them."""
    return o.name == "mean" and set(o.values("kernel")) == {1}


class _ProgramConverter:
    """The conversion of a program, after which each value has the number type that was chosen for it."""

    def __init__(
        self,
        argument_shapes: Sequence[Shape],
        operations: Sequence[Operation],
        weights: list[Any],
        number_types: Sequence[_NumberType],
    ) -> None:
        self._argument_shapes, self._operations, self._weights, self._target_types = (
            argument_shapes,
            operations,
            weights,
            number_types,
        )
        self._number_types: list[_NumberType] = [_NumberType() for _ in argument_shapes]  # of each new value
        self._new_numbers = list(range(len(argument_shapes)))  # the new number of each original value
        self._new_operations: list[Operation] = []
        self._converted_numbers: dict[tuple[int, _NumberType], int] = {}
        self._step_weights: dict[float, int] = {}

    def convert(self, result_numbers: Sequence[int]) -> tuple[list[Operation], list[int]]:
        for o in self._operations:
            self._new_numbers.append(self._add_converted(o))
        return self._new_operations, [self._convert_value(self._new_numbers[n], _NumberType()) for n in result_numbers]

    def _add_converted(self, o: Operation) -> int:
        original_number = len(self._new_numbers)
        target_type = self._target_types[original_number]
        inputs, has_weight = o.values("in"), "weight" in o.fields
        fields = dict(o.fields)
        if has_weight:
            input_type = self._target_types[inputs[0]]
            input_type = input_type if not input_type.step or o.name in _WEIGHT_OPERATIONS["int8"] else _NumberType()
            result_type = target_type if input_type.name != "float32" else _NumberType()
        elif target_type.name != "float32" and (
            _keeps_numbers(o) or o.name in _TYPE_PRESERVING_OPERATIONS[target_type.name]
        ):
            input_type = result_type = target_type
        else:
            input_type = result_type = _NumberType()
        fields |= {"in": [self._convert_value(self._new_numbers[n], input_type) for n in inputs]} | self._type_fields(
            result_type
        )
        if has_weight and input_type.step:
            fields["scales"] = self._quantize(o.values("weight")[0], input_type.step)
        name = "max" if _only_subsamples(o) else o.name
        epilogue = [(function, self._epilogue_fields(f)) for function, f in o.epilogue]
        return self._add(replace(o, name=name, fields=fields, epilogue=epilogue), result_type)

    def _add(self, o: Operation, number_type: _NumberType) -> int:
        self._new_operations.append(o)
        self._number_types.append(number_type)
        return len(self._number_types) - 1

    def _convert_value(self, number: int, number_type: _NumberType) -> int:
        """Return the number of a value that equals `number` and has this number type; add a conversion if needed."""
        source_type = self._number_types[number]
        if source_type == number_type:
            return number
        if (number, number_type) not in self._converted_numbers:
            fields: dict[str, FieldValue] = {"in": [number], **self._type_fields(number_type)}
            if source_type.step:
                fields["scales"] = self._add_step_weight(source_type.step)
            operation_index = number - len(self._argument_shapes)
            shape = (
                self._argument_shapes[number]
                if operation_index < 0
                else self._new_operations[operation_index].out_shape
            )
            self._converted_numbers[number, number_type] = self._add(Operation("convert", fields, shape), number_type)
        return self._converted_numbers[number, number_type]

    def _type_fields(self, number_type: _NumberType) -> dict[str, FieldValue]:
        fields: dict[str, FieldValue] = {number_type.name: ()} if number_type.name != "float32" else {}
        return fields | ({"scale": self._add_step_weight(number_type.step)} if number_type.step else {})

    def _epilogue_fields(self, fields: dict[str, FieldValue]) -> dict[str, FieldValue]:
        if not isinstance(value := fields.get("value"), int):
            return fields
        number = self._new_numbers[value]
        step = self._number_types[number].step
        return fields | {"value": number} | ({"a": step, "scale": self._add_step_weight(step)} if step else {})

    def _add_step_weight(self, step: float) -> int:
        """Return the number of a weight of shape (1,) that contains the step."""
        if step not in self._step_weights:
            self._step_weights[step] = self._add_weight(np.array([step], np.float32))
        return self._step_weights[step]

    def _quantize(self, weight: int, step: float) -> int:
        """Replace a weight with int8 integers, and add a weight that contains its steps, multiplied by `step`.

        Args:
            weight: the number of the weight, whose axis 0 is the axis of outputs.
            step: the step of the data that is multiplied by the weight.

        Returns:
            The number of the added weight, float32 (outputs,).
        """
        array = np.asarray(self._weights[weight], np.float32)
        largest = np.abs(array).reshape(len(array), -1).max(axis=1)
        steps = np.where(largest > 0, largest, 1) / 127
        self._weights[weight] = np.rint(array / steps.reshape(-1, *(1,) * (array.ndim - 1))).astype(np.int8)
        return self._add_weight((steps * step).astype(np.float32))

    def _add_weight(self, array: np.ndarray) -> int:
        self._weights.append(array)
        return len(self._weights) - 1
