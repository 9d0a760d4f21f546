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

from ..config import ComputeConfig, quote
from ..errors import CaffejaxError
from ..glog import log
from ..kernels import compilation, onednn, onednn_program
from ..kernels.onednn_program import FieldValue, Operation, Shape

Ranges = Mapping[str, tuple[float, float]]  # the minimum and maximum of each blob
_TINY = 1e-30  # used as the maximum of a blob of zeros, so that its step is not 0
_PRECISIONS = ("float32", "tf32", "bfloat16", "int8")
_NEEDS = {"bfloat16": "AVX512-BF16", "int8": "AVX512-VNNI and AVX-VNNI"}
_TYPES = {"float32": 0, "bfloat16": 1, "int8": 2, "uint8": 3}  # as in program.h
_WEIGHTED = {"bfloat16": ("convolution", "deconvolution", "dense"), "int8": ("convolution", "dense")}
_KEEPS_NUMBERS = ("max", "concat", "reshape")  # operations whose results consist of numbers of their inputs
_KEEPS_TYPE = {
    "bfloat16": (*_KEEPS_NUMBERS, "mean", "padded_mean", "lrn", "apply"),
    "int8": _KEEPS_NUMBERS,
    "uint8": _KEEPS_NUMBERS,
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
class _Form:
    """The number type of a value and, if it is "int8" or "uint8", its step; see the module's docstring."""

    type: str = "float32"
    step: float = 0


def resolve_precision(
    precision: str, compute_config: ComputeConfig
) -> tuple[ComputeConfig, Literal["bfloat16", "int8"] | None]:
    """Return the settings of a frozen net for a precision, and the number type of its oneDNN programs.

    The number type is None if no oneDNN program computes in low precision. If this processor or platform does not
    support the number type, a warning is logged once, and the net computes in float32. On platforms other than CPUs,
    XLA computes in bfloat16.

    Args:
        precision: "float32", "tf32", "bfloat16" or "int8".
        compute_config: the settings of the net. In the returned settings, `precision` is replaced.

    Raises:
        CaffejaxError: if the precision is unknown.
    """
    if precision not in _PRECISIONS:
        known = ", ".join(f'"{p}"' for p in _PRECISIONS)
        raise CaffejaxError(f"precision of a frozen net must be one of {known}, not {quote(precision)}")
    if precision != "bfloat16" and precision != "int8":
        return replace(compute_config, precision=precision), None  # type: ignore[arg-type]
    if precision == "bfloat16" and not compilation.runs_on_cpu():
        return replace(compute_config, precision="bfloat16"), None
    reason = _reason_against(precision, compute_config)
    if reason is not None:
        _warn(f"the net is frozen in float32 instead of {precision}: {reason}")
    return replace(compute_config, precision="float32"), None if reason else precision  # type: ignore[return-value]


def _reason_against(precision: str, compute_config: ComputeConfig) -> str | None:
    if not compilation.runs_on_cpu():
        return "it is supported only on CPUs"
    if compute_config.kernels != "fast" or not onednn_program.is_available():
        return 'it needs oneDNN and kernels="fast"'
    if not onednn.has_instructions(precision):
        return f"this processor lacks {_NEEDS[precision]}"
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
        if invalid := [name for name, pair in batch_ranges.items() if not np.all(np.isfinite(pair))]:
            listed = ", ".join(map(repr, invalid[:3])) + (", ..." if len(invalid) > 3 else "")
            raise CaffejaxError(
                f"batch {i} of calibration gives NaN or infinity in {listed}; int8 needs finite numbers"
            )
        for name, (low, high) in batch_ranges.items():
            smallest, largest = ranges.get(name, (low, high))
            ranges[name] = min(low, smallest), max(high, largest)
    return ranges


def lower_precision(
    low_precision: LowPrecision,
    arguments: Sequence[Shape],
    operations: Sequence[Operation],
    weights: list[Any],
    results: Sequence[int],
    names: Mapping[int, str],
) -> tuple[list[Operation], list[int]]:
    """Choose the type of each value of a program, and insert conversions.

    Args:
        low_precision: the number type, and for int8 the ranges.
        arguments: the shapes of the program's arguments, which are float32.
        operations: the operations of the program.
        weights: the weights. In this list, quantized weights replace the original weights, and steps are appended.
        results: the numbers of the values that the program returns, which are float32.
        names: the blob name of each value, by the value's number.

    Returns:
        The new operations, and the new numbers of the results.
    """
    names = dict(names)
    for number, operation in enumerate(operations, len(arguments)):
        if _only_subsamples(operation) and operation.values("in")[0] in names:
            names.setdefault(number, names[operation.values("in")[0]])
    forms = _forms(low_precision, len(arguments), operations, names)
    return _Conversion(arguments, operations, weights, forms).convert(results)


def _forms(
    low_precision: LowPrecision,
    first: int,
    operations: Sequence[Operation],
    names: Mapping[int, str],
) -> list[_Form]:
    """Return the form (type and step) of each value, which is float32 if no operation reads it in low precision.

    Args:
        low_precision: the number type, and for int8 the ranges.
        first: the number of the first operation's result, which is the number of arguments of the program.
        operations: the operations of the program.
        names: the blob name of each value, by the value's number.
    """
    count = first + len(operations)
    groups = list(range(count))  # values with a common step: the inputs and results of operations that keep numbers

    def root(value: int) -> int:
        while groups[value] != value:
            value = groups[value]
        return value

    for number, o in enumerate(operations, first):
        if _keeps_numbers(o):
            for value in o.values("in"):
                groups[root(value)] = root(number)
    step_of = _steps(
        low_precision, [[n for n in range(count) if root(n) == root(value)] for value in range(count)], names
    )
    needed = [False] * count
    for number, o in reversed(list(enumerate(operations, first))):
        if o.name in _WEIGHTED[low_precision.kind]:
            inputs = [n for n in o.values("in") if step_of(n) is not None]
            added = o.epilogue_inputs if needed[number] and low_precision.kind == "int8" else ()
        else:
            inputs = (
                list(o.values("in"))
                if (o.name in _KEEPS_TYPE[low_precision.kind] or _only_subsamples(o)) and needed[number]
                else []
            )
            added = ()
        for value in chain(inputs, added):
            needed[value] = step_of(value) is not None
    return [(step_of(n) or _Form()) if needed[n] else _Form() for n in range(count)]


def _steps(
    low_precision: LowPrecision, groups: Sequence[Sequence[int]], names: Mapping[int, str]
) -> Callable[[int], _Form | None]:
    """Return a function from a value's number to its low-precision form, or to None if its range is not known.

    Args:
        low_precision: the number type, and for int8 the ranges.
        groups: for each value, the numbers of the values that must have the same step.
        names: the blob name of each value, by the value's number.
    """

    def form(value: int) -> _Form | None:
        if low_precision.kind == "bfloat16":
            return _Form("bfloat16")
        ranges = [low_precision.ranges[names[n]] for n in groups[value] if names.get(n) in low_precision.ranges]
        if not ranges or names.get(value) not in low_precision.ranges:
            return None
        smallest, largest = min(r[0] for r in ranges), max(r[1] for r in ranges)
        if smallest >= 0:
            return _Form("uint8", max(largest, _TINY) / 255)
        return _Form("int8", max(-smallest, largest) / 127)

    return form


def _keeps_numbers(o: Operation) -> bool:
    return o.name in _KEEPS_NUMBERS or _only_subsamples(o)


def _only_subsamples(o: Operation) -> bool:
    """Return whether an operation is a mean over windows of one cell. It selects cells without changing them."""
    return o.name == "mean" and set(o.values("kernel")) == {1}


class _Conversion:
    """The conversion of a program, after which each value has the form (type and step) that was chosen for it."""

    def __init__(
        self, arguments: Sequence[Shape], operations: Sequence[Operation], weights: list[Any], forms: Sequence[_Form]
    ) -> None:
        self._arguments, self._operations, self._weights, self._needed = arguments, operations, weights, forms
        self._forms: list[_Form] = [_Form() for _ in arguments]  # the form of each new value
        self._numbers = list(range(len(arguments)))  # the new number of each original value
        self._result: list[Operation] = []
        self._converted: dict[tuple[int, _Form], int] = {}
        self._step_weights: dict[float, int] = {}

    def convert(self, results: Sequence[int]) -> tuple[list[Operation], list[int]]:
        for o in self._operations:
            self._numbers.append(self._add_converted(o))
        return self._result, [self._in_form(self._numbers[n], _Form()) for n in results]

    def _add_converted(self, o: Operation) -> int:
        original = len(self._numbers)
        target = self._needed[original]
        inputs, has_weight = o.values("in"), "weight" in o.fields
        fields = dict(o.fields)
        if has_weight:
            form = self._needed[inputs[0]]
            form = form if not form.step or o.name in _WEIGHTED["int8"] else _Form()
            result = target if form.type != "float32" else _Form()
        elif target.type != "float32" and (_keeps_numbers(o) or o.name in _KEEPS_TYPE[target.type]):
            form = result = target
        else:
            form = result = _Form()
        fields |= {"in": [self._in_form(self._numbers[n], form) for n in inputs]} | self._type_fields(result)
        if has_weight and form.step:
            fields["scales"] = self._quantize(o.values("weight")[0], form.step)
        name = "max" if _only_subsamples(o) else o.name
        epilogue = [(function, self._epilogue_fields(f)) for function, f in o.epilogue]
        return self._add(replace(o, name=name, fields=fields, epilogue=epilogue), result)

    def _add(self, o: Operation, form: _Form) -> int:
        self._result.append(o)
        self._forms.append(form)
        return len(self._forms) - 1

    def _in_form(self, number: int, form: _Form) -> int:
        """Return the number of a value that equals value `number` and has the given form, after adding a conversion."""
        source_form = self._forms[number]
        if source_form == form:
            return number
        if (number, form) not in self._converted:
            fields: dict[str, FieldValue] = {"in": [number], **self._type_fields(form)}
            if source_form.step:
                fields["scales"] = self._step(source_form.step)
            operation = number - len(self._arguments)
            shape = self._arguments[number] if operation < 0 else self._result[operation].out_shape
            self._converted[number, form] = self._add(Operation("convert", fields, shape), form)
        return self._converted[number, form]

    def _type_fields(self, form: _Form) -> dict[str, FieldValue]:
        fields: dict[str, FieldValue] = {"type": _TYPES[form.type]} if form.type != "float32" else {}
        return fields | ({"scale": self._step(form.step)} if form.step else {})

    def _epilogue_fields(self, fields: dict[str, FieldValue]) -> dict[str, FieldValue]:
        if not isinstance(value := fields.get("value"), int):
            return fields
        number = self._numbers[value]
        step = self._forms[number].step
        return fields | {"value": number} | ({"a": step, "scale": self._step(step)} if step else {})

    def _step(self, step: float) -> int:
        """Return the number of a weight of shape (1,) that contains the step."""
        if step not in self._step_weights:
            self._step_weights[step] = self._add_weight(np.array([step], np.float32))
        return self._step_weights[step]

    def _quantize(self, weight: int, step: float) -> int:
        """Replace a weight with int8 integers, and add a weight that contains its steps, multiplied by `step`.

        Args:
            weight: the number of the weight, whose axis 0 are the outputs.
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
