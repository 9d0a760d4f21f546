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

from ..kernels.onednn_program import FieldValue, Operation, Program, Shape, write_program
from .low_precision import LowPrecision, convert_precision

Stride = tuple[int, ...]
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
        argument_shapes: the shapes of the program's arguments.
    """

    def __init__(self, argument_shapes: Sequence[Shape]) -> None:
        self.argument_shapes = tuple(argument_shapes)
        self.weights: list[Any] = []
        self._operations: list[Operation] = []
        self._shared_numbers: set[int] = set()

    def argument(self, i: int) -> Value:
        """Return the value of argument number `i` of the program."""
        return Value(i, self.argument_shapes[i])

    def mark_shared(self, value: Value) -> None:
        """Mark a value as a result or as read several times, so that no later operation is fused into its producer."""
        self._shared_numbers.add(value.number)

    def add_weight(self, array: Any) -> int:
        """Add a weight to the program, and return the number of the weight."""
        self.weights.append(array)
        return len(self.weights) - 1

    def add(self, name: str, values: Sequence[Value], out_shape: Iterable[int], **fields: FieldValue) -> Value:
        """Add an operation to the program, and return its result.

        Args:
            name: the name of the operation, such as "convolution".
            values: the values that the operation reads.
            out_shape: the shape of the result.
            fields: the settings of the operation, by name, such as `stride`.
        """
        result_shape = tuple(out_shape)
        self._operations.append(Operation(name, {"in": [v.number for v in values], **fields}, result_shape))
        return Value(len(self.argument_shapes) + len(self._operations) - 1, result_shape)

    def apply(self, x: Value, name: str, a: float = 0, b: float = 0) -> Value:
        """Apply an elementwise function to `x`, and return the result.

        The function is fused into the operation that computes `x`, if nothing else reads `x`.

        Args:
            x: the value.
            name: the name of the function, such as "relu".
            a, b: the settings of the function, such as the slope.
        """
        return self._append_to_epilogue(x, name, {"a": float(a), "b": float(b)})

    def apply_per_channel(self, x: Value, name: str, array: Any) -> Value:
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
        for target, operand in ((x, y), (y, x))[: 2 if x.shape == y.shape else 1]:
            if self._can_fuse_into(target) and operand.number < target.number:
                return self._append_to_epilogue(target, name, {"value": operand.number})
        return self._append_to_epilogue(self.add("apply", [x], x.shape), name, {"value": y.number})

    def _can_fuse_into(self, x: Value) -> bool:
        index = x.number - len(self.argument_shapes)
        return index >= 0 and self._operations[index].name in _FUSIBLE and x.number not in self._shared_numbers

    def _append_to_epilogue(self, x: Value, name: str, fields: dict[str, FieldValue]) -> Value:
        if not self._can_fuse_into(x):
            x = self.add("apply", [x], x.shape)
        self._operations[x.number - len(self.argument_shapes)].epilogue.append((name, fields))
        return x

    def make_program(
        self,
        results: Sequence[Value],
        blob_names: Mapping[int, str] | None = None,
        low_precision: LowPrecision | None = None,
    ) -> Program:
        """Return the program that computes `results`, to which `hoist_strides` has been applied.

        Args:
            results: the values to return.
            blob_names: the blob name of each value, by the value's number. Only `low_precision` needs it.
            low_precision: the number type in which the program computes, or None for float32.
        """
        weight_shapes = [tuple(np.shape(w)) for w in self.weights]
        result_numbers = [value.number for value in results]
        operations, new_numbers = hoist_strides(self._operations, self.argument_shapes, weight_shapes, result_numbers)
        result_numbers = [new_numbers[n] for n in result_numbers]
        if low_precision is not None:
            new_blob_names = {new_numbers[n]: name for n, name in (blob_names or {}).items()}
            operations, result_numbers = convert_precision(
                low_precision, self.argument_shapes, operations, self.weights, result_numbers, new_blob_names
            )
            weight_shapes = [tuple(np.shape(w)) for w in self.weights]
        return write_program(self.argument_shapes, weight_shapes, operations, result_numbers)


def hoist_strides(
    operations: Sequence[Operation],
    argument_shapes: Sequence[Shape],
    weight_shapes: Sequence[Shape],
    result_numbers: Collection[int],
) -> tuple[list[Operation], list[int]]:
    """Move strides to earlier convolutions of a program, so that unused pixels are not computed.

    Args:
        operations: the operations, which are not modified.
        argument_shapes: the shapes of the arguments.
        weight_shapes: the shapes of the weights.
        result_numbers: the numbers of the values that the program returns.

    Returns:
        The new operations, and the new number of each original value. For values that are read both with and without a
        stride, operations that select every stride-th pixel are added.
    """
    num_arguments = len(argument_shapes)
    if not any(_is_pointwise_reader(o, -1, weight_shapes) and max(o.values("stride")) > 1 for o in operations):
        return list(operations), list(range(num_arguments + len(operations)))
    new_operations = [replace(o, fields=dict(o.fields), epilogue=list(o.epilogue)) for o in operations]
    # for each operation: the values that it must read subsampled, with their strides
    subsampled_inputs: list[dict[int, Stride]] = [{} for _ in new_operations]
    readers_of: dict[int, list[Operation]] = defaultdict(list)
    for o in new_operations:
        for number in {*o.values("in"), *o.epilogue_inputs}:
            readers_of[number].append(o)
    for i in reversed(range(len(new_operations))):
        o, number = new_operations[i], num_arguments + i
        readers = readers_of[number]
        common_stride = _find_common_stride(readers, number, weight_shapes)
        if o.name != "convolution" or number in result_numbers or common_stride is None:
            continue
        addends = [
            n
            for n in o.epilogue_inputs
            if _value_shape(n, new_operations, argument_shapes)[2:] != (1,) * len(common_stride)
        ]
        if any(_value_shape(n, new_operations, argument_shapes) != o.out_shape for n in addends):
            continue
        for r in readers:
            r.fields["stride"] = (1,) * len(common_stride)
        o.fields["stride"] = tuple(a * b for a, b in zip(o.values("stride"), common_stride, strict=True))
        o.out_shape = _subsampled_shape(o.out_shape, common_stride)
        subsampled_inputs[i] = dict.fromkeys(addends, common_stride)
    return _add_subsampling(new_operations, subsampled_inputs, argument_shapes)


def _add_subsampling(
    operations: Sequence[Operation], subsampled_inputs: Sequence[dict[int, Stride]], argument_shapes: Sequence[Shape]
) -> tuple[list[Operation], list[int]]:
    new_numbers = list(range(len(argument_shapes)))
    new_operations: list[Operation] = []
    for o, inputs in zip(operations, subsampled_inputs, strict=True):
        replacements = {}
        for value, stride in inputs.items():
            zeros, ones = (0,) * len(stride), (1,) * len(stride)
            fields: dict[str, FieldValue] = {
                "in": [new_numbers[value]],
                "stride": stride,
                "kernel": ones,
                "low": zeros,
                "high": zeros,
            }
            new_operations.append(
                Operation("mean", fields, _subsampled_shape(_value_shape(value, operations, argument_shapes), stride))
            )
            replacements[value] = len(argument_shapes) + len(new_operations) - 1
        fields = o.fields | {"in": [new_numbers[n] for n in o.values("in")]}
        epilogue = [
            (
                name,
                epilogue_fields | {"value": replacements.get(n, new_numbers[n])}
                if isinstance(n := epilogue_fields.get("value"), int)
                else epilogue_fields,
            )
            for name, epilogue_fields in o.epilogue
        ]
        new_operations.append(replace(o, fields=fields, epilogue=epilogue))
        new_numbers.append(len(argument_shapes) + len(new_operations) - 1)
    return new_operations, new_numbers


def _find_common_stride(readers: Sequence[Operation], number: int, weight_shapes: Sequence[Shape]) -> Stride | None:
    """Return the stride of the 1x1 convolutions that read a value, if it can be moved to an earlier operation.

    The result is None if another operation reads the value, if the readers have different strides, or if their stride
    is 1.
    """
    strides = {r.values("stride") if _is_pointwise_reader(r, number, weight_shapes) else None for r in readers}
    stride = strides.pop() if len(strides) == 1 else None
    return stride if stride and max(stride) > 1 else None


def _is_pointwise_reader(reader: Operation, number: int, weight_shapes: Sequence[Shape]) -> bool:
    if reader.name != "convolution" or number in reader.epilogue_inputs:
        return False
    kernel = weight_shapes[reader.values("weight")[0]][2:]
    return max(*kernel, 1) == 1 and not any(reader.values("low") + reader.values("high"))


def _value_shape(number: int, operations: Sequence[Operation], argument_shapes: Sequence[Shape]) -> Shape:
    return (
        argument_shapes[number]
        if number < len(argument_shapes)
        else operations[number - len(argument_shapes)].out_shape
    )


def _subsampled_shape(shape: Shape, stride: Stride) -> Shape:
    return (*shape[:2], *(-(n // -s) for n, s in zip(shape[2:], stride, strict=True)))
