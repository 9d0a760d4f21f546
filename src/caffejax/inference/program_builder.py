"""Builder of oneDNN programs, and an optimization that moves strides to earlier convolutions.

In Caffe's ResNets, each stage begins with two 1x1 convolutions of stride 2. Both read the sum at the end of the
previous stage, which no other layer reads, so three of four pixels of the sum are not used. `hoist_strides` moves the
stride to the convolution that computes the sum, and from there to earlier convolutions, if all readers of their results
have the stride. The unused pixels are then not computed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..kernels.onednn_program import FieldValue, Operation, Program, Shape, encode
from .low_precision import LowPrecision, lower_precision

Strides = tuple[int, ...]
_FUSIBLE = ("convolution", "deconvolution", "dense", "apply")  # operations into which later ones can be fused


@dataclass(frozen=True)
class Value:
    """A value of a program: an argument or the result of an operation.

    Attributes:
        number: the number of the value in the program.
        shape: the shape of the value.
    """

    number: int
    shape: Shape


class ProgramBuilder:
    """Builds a oneDNN program, a sequence of operations that one call runs.

    Args:
        arguments: the shapes of the program's arguments.
    """

    def __init__(self, arguments: Sequence[Shape]) -> None:
        self.arguments = tuple(arguments)
        self.weights: list[Any] = []
        self._operations: list[Operation] = []
        self._shared: set[int] = set()

    def argument(self, i: int) -> Value:
        """Return the value of argument number `i` of the program."""
        return Value(i, self.arguments[i])

    def mark_shared(self, value: Value) -> None:
        """Mark a value as a result or as read several times, so that no later operation is fused into its producer."""
        self._shared.add(value.number)

    def add_weight(self, array: Any) -> int:
        """Add a weight to the program, and return the number of the weight."""
        self.weights.append(array)
        return len(self.weights) - 1

    def add(self, name: str, values: Sequence[Value], out: Iterable[int], **fields: FieldValue) -> Value:
        """Add an operation to the program, and return its result.

        Args:
            name: the name of the operation, such as "convolution".
            values: the values that the operation reads.
            out_shape: the shape of the result.
            fields: the settings of the operation, by name, such as `stride`.
        """
        shape = tuple(out)
        self._operations.append(Operation(name, {"in": [v.number for v in values], **fields}, shape))
        return Value(len(self.arguments) + len(self._operations) - 1, shape)

    def apply(self, x: Value, name: str, a: float = 0, b: float = 0) -> Value:
        """Apply an elementwise function to `x`, and return the result.

        The function is fused into the operation that computes `x`, if nothing else reads `x`.

        Args:
            x: the value.
            name: the name of the function, such as "relu".
            a, b: the settings of the function, such as the slope.
        """
        return self._append_to_epilogue(x, name, {"a": float(a), "b": float(b)})

    def apply_by_channel(self, x: Value, name: str, array: Any) -> Value:
        """Combine each channel of `x` with a number, and return the result. As in `apply`, the function may be fused.

        Args:
            x: the value.
            name: the name of the function, such as "plus", "times" or "prelu".
            array: the numbers, float32 (channels,).
        """
        return self._append_to_epilogue(x, name, {"weight": self.add_weight(array)})

    def combine(self, name: str, x: Value, y: Value) -> Value:
        """Combine two values elementwise, by "plus", "times" or "maximum", and return the result.

        `y` is broadcast to the shape of `x`. The function is fused into the operation that computes the later of the
        two values, if nothing else reads that value.
        """
        for target, other in ((x, y), (y, x))[: 2 if x.shape == y.shape else 1]:
            if self._can_fuse_into(target) and other.number < target.number:
                return self._append_to_epilogue(target, name, {"value": other.number})
        return self._append_to_epilogue(self.add("apply", [x], x.shape), name, {"value": y.number})

    def _can_fuse_into(self, x: Value) -> bool:
        index = x.number - len(self.arguments)
        return index >= 0 and self._operations[index].name in _FUSIBLE and x.number not in self._shared

    def _append_to_epilogue(self, x: Value, name: str, fields: dict[str, FieldValue]) -> Value:
        if not self._can_fuse_into(x):
            x = self.add("apply", [x], x.shape)
        self._operations[x.number - len(self.arguments)].epilogue.append((name, fields))
        return x

    def encode_program(
        self,
        results: Sequence[Value],
        names: Mapping[int, str] | None = None,
        low_precision: LowPrecision | None = None,
    ) -> Program:
        """Return the encoded program that computes `results`, to which `hoist_strides` has been applied.

        Args:
            results: the values to return.
            names: the blob name of each value, by the value's number. Only `low_precision` needs it.
            low_precision: the number type in which the program computes, or None for float32.
        """
        weights = [tuple(np.shape(w)) for w in self.weights]
        outputs = [value.number for value in results]
        operations, numbers = hoist_strides(self._operations, self.arguments, weights, outputs)
        outputs = [numbers[n] for n in outputs]
        if low_precision is not None:
            blobs = {numbers[n]: name for n, name in (names or {}).items()}
            operations, outputs = lower_precision(
                low_precision, self.arguments, operations, self.weights, outputs, blobs
            )
            weights = [tuple(np.shape(w)) for w in self.weights]
        return encode(self.arguments, weights, operations, outputs)


def hoist_strides(
    operations: Sequence[Operation], arguments: Sequence[Shape], weights: Sequence[Shape], results: Collection[int]
) -> tuple[list[Operation], list[int]]:
    """Move strides to earlier convolutions of a program, so that unused pixels are not computed.

    Args:
        operations: the operations, which are not modified.
        arguments: the shapes of the arguments.
        weights: the shapes of the weights.
        results: the numbers of the values that the program returns.

    Returns:
        The new operations, and the new number of each original value. For values that are read both with and without a
        stride, operations that select every stride-th pixel are added.
    """
    num_arguments = len(arguments)
    if not any(_is_pointwise_reader(o, -1, weights) and max(o.values("stride")) > 1 for o in operations):
        return list(operations), list(range(num_arguments + len(operations)))
    hoisted = [replace(o, fields=dict(o.fields), epilogue=list(o.epilogue)) for o in operations]
    # for each operation: the values that it must read subsampled, with their strides
    subsampled_inputs: list[dict[int, Strides]] = [{} for _ in hoisted]
    readers_of: dict[int, list[Operation]] = defaultdict(list)
    for o in hoisted:
        for number in {*o.values("in"), *o.epilogue_inputs}:
            readers_of[number].append(o)
    for i in reversed(range(len(hoisted))):
        o, number = hoisted[i], num_arguments + i
        readers = readers_of[number]
        steps = _common_stride(readers, number, weights)
        if o.name != "convolution" or number in results or steps is None:
            continue
        addends = [n for n in o.epilogue_inputs if _shape(n, hoisted, arguments)[2:] != (1,) * len(steps)]
        if any(_shape(n, hoisted, arguments) != o.out_shape for n in addends):
            continue
        for r in readers:
            r.fields["stride"] = (1,) * len(steps)
        o.fields["stride"] = tuple(a * b for a, b in zip(o.values("stride"), steps, strict=True))
        o.out_shape = _subsampled_shape(o.out_shape, steps)
        subsampled_inputs[i] = dict.fromkeys(addends, steps)
    return _with_subsampling(hoisted, subsampled_inputs, arguments)


def _with_subsampling(
    operations: Sequence[Operation], subsampled_inputs: Sequence[dict[int, Strides]], arguments: Sequence[Shape]
) -> tuple[list[Operation], list[int]]:
    numbers = list(range(len(arguments)))
    result: list[Operation] = []
    for o, inputs in zip(operations, subsampled_inputs, strict=True):
        replacements = {}
        for value, steps in inputs.items():
            zeros, ones = (0,) * len(steps), (1,) * len(steps)
            fields: dict[str, FieldValue] = {
                "in": [numbers[value]],
                "stride": steps,
                "kernel": ones,
                "low": zeros,
                "high": zeros,
            }
            result.append(Operation("mean", fields, _subsampled_shape(_shape(value, operations, arguments), steps)))
            replacements[value] = len(arguments) + len(result) - 1
        fields = o.fields | {"in": [numbers[n] for n in o.values("in")]}
        epilogue = [
            (
                name,
                fields_ | {"value": replacements.get(n, numbers[n])}
                if isinstance(n := fields_.get("value"), int)
                else fields_,
            )
            for name, fields_ in o.epilogue
        ]
        result.append(replace(o, fields=fields, epilogue=epilogue))
        numbers.append(len(arguments) + len(result) - 1)
    return result, numbers


def _common_stride(readers: Sequence[Operation], number: int, weights: Sequence[Shape]) -> Strides | None:
    """Return the stride of the 1x1 convolutions that read a value, if it can be moved to an earlier operation.

    The result is None if another operation reads the value, if the readers have different strides, or if their stride
    is 1.
    """
    strides = {r.values("stride") if _is_pointwise_reader(r, number, weights) else None for r in readers}
    steps = strides.pop() if len(strides) == 1 else None
    return steps if steps and max(steps) > 1 else None


def _is_pointwise_reader(reader: Operation, number: int, weights: Sequence[Shape]) -> bool:
    if reader.name != "convolution" or number in reader.epilogue_inputs:
        return False
    kernel = weights[reader.values("weight")[0]][2:]
    return max(*kernel, 1) == 1 and not any(reader.values("low") + reader.values("high"))


def _shape(number: int, operations: Sequence[Operation], arguments: Sequence[Shape]) -> Shape:
    return arguments[number] if number < len(arguments) else operations[number - len(arguments)].out_shape


def _subsampled_shape(shape: Shape, steps: Strides) -> Shape:
    return (*shape[:2], *(-(n // -step) for n, step in zip(shape[2:], steps, strict=True)))
