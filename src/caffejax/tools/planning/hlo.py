"""Statistics of a compiled program from its HLO text: memory traffic, collectives, fusions, copies and host calls.

The HLO text is XLA's program after all compiler passes, with one instruction per line. Each top-level instruction reads
its operands from device memory once and writes its results to device memory once. Instructions inside fusions, arrays
in on-chip memory and workspaces of library calls cause no traffic. A loop body is counted once per iteration if XLA
knows the trip count, otherwise once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "collective-permute", "all-to-all")

_INSTRUCTION = re.compile(r"\s*(?:ROOT )?%?([\w.\-]+) = (.*?) ([\w\-]+)\((.*)")
_COMPUTATION = re.compile(r"(ENTRY )?%?([\w.\-]+) \(.*\{$")
_ARRAY = re.compile(r"\b(pred|[a-z]+\d+[a-z0-9]*)\[([\d,<=]*)\](\{[^{}]*\})?")
_TRIP_COUNT = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_BITS = re.compile(r"\d+")
_ON_CHIP_LAYOUT = re.compile(r"S\([1-9]\d*\)")
_HOST_CALL = re.compile(r'custom_call_target="[^"]*(?:callback|host|CallbackTo|caffejax)[^"]*"', re.IGNORECASE)
# on TPUs a call sends its arguments, and then receives its results, the first of them after what was sent
_SENT, _RECEIVED = re.compile(r"(%[\w.-]+) = token\[\] send-done\("), re.compile(r" recv\((?:token\[\] )?(%[\w.-]+)\)")
# a call of cuBLAS or cuDNN has its workspace as the last result; cuBLAS gets 32 MiB even for small products
_LIBRARY_CALL = re.compile(r'custom_call_target="__cu(?:blas|dnn)\$')
_WORKSPACE = re.compile(r", [su]8\[\d+\](?:\{[^{}]*\})?\)$")
_FREE_OPCODES = frozenset(
    "parameter get-tuple-element tuple bitcast constant after-all partition-id replica-id opt-barrier "
    "optimization-barrier add-dependency while call conditional".split()
)
_SLICE_OPCODES = frozenset(("slice", "dynamic-slice"))


@dataclass(frozen=True)
class Collective:
    """Collectives of a program that have the same kind, size and group.

    Attributes:
        kind: XLA's name, such as "all-reduce".
        bytes: the size of the result on each device.
        count: the number of these collectives.
        group_size: the number of devices in a group. Devices exchange data within their group.
        group_stride: the distance between neighbouring devices of a group, in the order of the mesh.
    """

    kind: str
    bytes: int
    count: int
    group_size: int = 1
    group_stride: int = 1

    @property
    def total_bytes(self) -> int:
        """The size in bytes of the full array: the operand of a reduce-scatter, or the result of other collectives."""
        return self.bytes * self.group_size if self.kind == "reduce-scatter" else self.bytes

    def is_within(self, model_axis_size: int) -> bool:
        """Return whether each group is in a single row of the mesh. A row has `model_axis_size` devices."""
        return self.group_stride * self.group_size <= model_axis_size

    def num_mesh_rows(self, model_axis_size: int) -> int:
        """Return the number of mesh rows that a group spans. A row has `model_axis_size` devices."""
        return 1 if self.is_within(model_axis_size) else max(1, self.group_size * self.group_stride // model_axis_size)

    def bytes_sent(self, num_devices: int, size: float) -> float:
        """Return the minimum bytes that each of `num_devices` devices sends for a full array of `size` bytes."""
        if self.kind == "collective-permute":
            return size if num_devices > 1 else 0.0
        return (2 if self.kind == "all-reduce" else 1) * size * (num_devices - 1) / num_devices


@dataclass(frozen=True)
class ProgramStats:
    """Statistics of one device's program for one call.

    Attributes:
        traffic: the bytes that are read from and written to device memory.
        bytes_accessed: the compiler's estimate of these bytes, including on-chip memory; None if it gives no estimate.
        argument_bytes: the memory of the arguments.
        result_bytes: the memory of the results. Results that reuse the memory of arguments do not count.
        temp_bytes: the memory of temporary arrays.
        collectives: the collectives, largest first.
        num_fusions: the number of fused kernels.
        num_copies: the number of instructions that only move data or change its layout.
        num_host_calls: the number of calls to the host.
        num_float64: the number of instructions that compute in float64.
    """

    traffic: int
    bytes_accessed: int | None
    argument_bytes: int
    result_bytes: int
    temp_bytes: int
    collectives: tuple[Collective, ...]
    num_fusions: int
    num_copies: int
    num_host_calls: int
    num_float64: int

    @property
    def memory(self) -> int:
        """The memory of arguments, results and temporary arrays, in bytes."""
        return self.argument_bytes + self.result_bytes + self.temp_bytes

    @property
    def num_collectives(self) -> int:
        """The number of all collectives."""
        return sum(c.count for c in self.collectives)


def get_compiled_stats(compiled: Any) -> ProgramStats:
    """Return the statistics of a compiled function (`jax.stages.Compiled`)."""
    stats, memory = parse_stats(compiled.as_text()), compiled.memory_analysis()
    bytes_accessed = (compiled.cost_analysis() or {}).get("bytes accessed")
    return ProgramStats(
        bytes_accessed=None if bytes_accessed is None else int(bytes_accessed),
        argument_bytes=int(memory.argument_size_in_bytes),
        result_bytes=int(memory.output_size_in_bytes - memory.alias_size_in_bytes),
        temp_bytes=int(memory.temp_size_in_bytes),
        **stats,
    )


def parse_stats(text: str) -> dict[str, Any]:
    """Return statistics of a program from its HLO text, as a dict whose keys are names of fields of `ProgramStats`."""
    module = _parse_module(text)
    totals = _Totals()
    _accumulate(module, module.entry, 1, totals)
    collectives = (Collective(kind, size, n, *group) for (kind, size, *group), n in totals.collectives.items())
    return {
        "traffic": totals.traffic,
        "collectives": tuple(sorted(collectives, key=lambda c: (-c.bytes, c.kind))),
        "num_fusions": totals.num_fusions,
        "num_copies": totals.num_copies,
        "num_host_calls": len(_HOST_CALL.findall(text))
        + len({*_SENT.findall(text)}.intersection(_RECEIVED.findall(text))),
        "num_float64": sum(" f64[" in line for line in text.splitlines()),
    }


class _Instruction(NamedTuple):
    shape: str
    opcode: str
    operands: tuple[str, ...]
    attributes: str
    is_root: bool

    @property
    def bytes(self) -> int:
        """The bytes of the result in device memory. Arrays in on-chip memory are not counted."""
        return _device_memory_bytes(self.shape)

    def called_computations(self, attribute: str) -> list[str]:
        match = re.search(rf"\b{attribute}=(?:%?([\w.\-]+)|\{{([^}}]*)\}})", self.attributes)
        return re.findall(r"[\w.\-]+", match[1] or match[2]) if match else []


Computation = dict[str, _Instruction]


class _Module(NamedTuple):
    entry: str
    computations: Mapping[str, Computation]


@dataclass
class _Totals:
    traffic: int = 0
    num_fusions: int = 0
    num_copies: int = 0
    collectives: dict[tuple[str, int, int, int], int] = field(default_factory=dict)


def _parse_module(text: str) -> _Module:
    computations: dict[str, Computation] = {}
    entry, computation_name = "", ""
    for line in text.splitlines():
        if header := _COMPUTATION.match(line):
            computation_name = header[2]
            computations[computation_name] = {}
            entry = computation_name if header[1] else entry
        elif computation_name and (match := _INSTRUCTION.match(line)):
            name, shape, opcode, operands_text = match.groups()
            operands, _, attributes = operands_text.partition(")")
            operand_names = (operands,) if opcode == "parameter" else tuple(re.findall(r"%([\w.\-]+)", operands))
            computations[computation_name][name] = _Instruction(
                shape, opcode, operand_names, attributes, "ROOT" in line[: match.start(1)]
            )
    return _Module(entry, computations)


def _accumulate(module: _Module, name: str, num_runs: int, totals: _Totals) -> None:
    """Add the statistics of the computation `name`, which runs `num_runs` times, to the totals."""
    computation = module.computations.get(name, {})
    for instruction in computation.values():
        opcode = instruction.opcode
        totals.num_fusions += opcode == "fusion"
        totals.num_copies += opcode in ("copy", "copy-start", "transpose")
        if key := _make_collective_key(module, instruction):
            totals.collectives[key] = totals.collectives.get(key, 0) + num_runs
        totals.traffic += num_runs * _count_traffic(module, computation, instruction)
        trip_count = _TRIP_COUNT.search(instruction.attributes)
        num_called_runs = num_runs * (int(trip_count[1]) if trip_count and opcode == "while" else 1)
        if opcode in ("while", "call", "conditional"):
            for attribute in ("body", "to_apply", "branch_computations", "true_computation", "false_computation"):
                for callee in instruction.called_computations(attribute):
                    _accumulate(module, callee, num_called_runs, totals)


def _make_collective_key(module: _Module, instruction: _Instruction) -> tuple[str, int, int, int] | None:
    """Return the kind, result bytes, group size and group stride of a collective; None for other instructions.

    On TPUs, an all-reduce may be fused with a slice of its result. Such a fusion counts as a reduce-scatter.
    """
    kind = instruction.opcode.removesuffix("-start")
    if kind in COLLECTIVES:
        return kind, _result_bytes(instruction), *parse_replica_group(instruction.attributes)
    if kind != "fusion":
        return None
    fused_instructions = [
        i for name in instruction.called_computations("calls") for i in module.computations.get(name, {}).values()
    ]
    for fused_instruction in fused_instructions:
        if fused_instruction.opcode == "all-reduce":
            is_sliced = any(i.is_root and i.opcode == "dynamic-slice" for i in fused_instructions)
            kind = "reduce-scatter" if is_sliced else fused_instruction.opcode
            return kind, _total_bytes(instruction.shape), *parse_replica_group(fused_instruction.attributes)
    return None


def _count_traffic(module: _Module, computation: Computation, instruction: _Instruction) -> int:
    opcode = instruction.opcode
    if opcode in _FREE_OPCODES or opcode.endswith("-start"):
        return 0
    operands = [computation[name] for name in instruction.operands if name in computation]
    if opcode.endswith("-done"):  # the transfer that the -start instruction began: one read and one write
        start_instruction = operands[0] if operands else instruction
        sources = [computation[name] for name in start_instruction.operands if name in computation]
        bytes_read = _total_bytes(instruction.shape) if any(s.bytes for s in sources) else 0
        return instruction.bytes + bytes_read
    if opcode == "fusion":
        (callee,) = instruction.called_computations("calls") or [""]
        return _count_fusion_traffic(module.computations.get(callee, {}), instruction, operands)
    if opcode in _SLICE_OPCODES:
        return 2 * instruction.bytes
    if opcode == "dynamic-update-slice":
        return 2 * operands[1].bytes if len(operands) > 1 else 0
    is_library_call = opcode == "custom-call" and _LIBRARY_CALL.search(instruction.attributes)
    results = _WORKSPACE.sub(")", instruction.shape) if is_library_call else instruction.shape
    return _device_memory_bytes(results) + sum(o.bytes for o in operands)


def _count_fusion_traffic(fused_computation: Computation, fusion: _Instruction, operands: list[_Instruction]) -> int:
    """Return the bytes that a fusion reads and writes. For slices, only the part that they read or update counts."""
    uses_by_name: dict[str, list[tuple[int, _Instruction]]] = {}
    for instruction in fused_computation.values():
        for index, name in enumerate(instruction.operands):
            uses_by_name.setdefault(name, []).append((index, instruction))
    parameter_names = {i.operands[0]: name for name, i in fused_computation.items() if i.opcode == "parameter"}
    total = 0
    for operand_index, operand in enumerate(operands):
        uses = uses_by_name.get(parameter_names.get(str(operand_index), ""), [])
        if not operand.bytes:
            continue
        if uses and all(u.opcode in _SLICE_OPCODES for _, u in uses):
            total += min(operand.bytes, sum(_total_bytes(u.shape) for _, u in uses))
        elif not (uses and all(u.opcode == "dynamic-update-slice" and index == 0 for index, u in uses)):
            total += operand.bytes
    roots = [i for i in fused_computation.values() if i.is_root]
    if roots and roots[0].opcode == "dynamic-update-slice" and len(roots[0].operands) > 1:
        return total + _total_bytes(fused_computation[roots[0].operands[1]].shape)
    return total + fusion.bytes


def _parse_arrays(shape: str) -> Iterator[tuple[int, bool]]:
    """Yield (size in bytes, whether it is in on-chip memory) for each array of an HLO shape."""
    for dtype, dims, layout in _ARRAY.findall(shape):
        bits = 8 if dtype == "pred" else int(_BITS.search(dtype)[0])  # type: ignore[index]
        n = 1
        for dim in filter(None, dims.split(",")):
            n *= int(dim.lstrip("<="))
        yield -(-n * bits // 8), bool(_ON_CHIP_LAYOUT.search(layout))


def _device_memory_bytes(shape: str) -> int:
    return sum(size for size, is_on_chip in _parse_arrays(shape) if not is_on_chip)


def _total_bytes(shape: str) -> int:
    return sum(size for size, _ in _parse_arrays(shape))


def _result_bytes(instruction: _Instruction) -> int:
    """Return the bytes of a collective's results. The shape of a `-start` instruction begins with its operands."""
    sizes = [
        size for size, _ in _parse_arrays(instruction.shape.replace("u32[]", ""))
    ]  # without the context number of the collective, which is not data
    if instruction.opcode.endswith("-start") and instruction.opcode != "all-reduce-start" and len(sizes) > 1:
        return sum(sizes[len(sizes) // 2 :])
    return sum(sizes)


_LIST_GROUPS = re.compile(r"replica_groups=\{\{([\d,]*)\}")
# "[groups,devices]<=[shape]T(axes)": the device numbers as an array of this shape, with its axes transposed
_IOTA_GROUPS = re.compile(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
# "mesh['a'=2,'b'=4], device_ids=([shape]T(axes)) {'a'}": groups along axis 'a' of this mesh
_MESH_GROUPS = re.compile(
    r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\(\[([\d,]+)\](?:T\(([\d,]+)\))?\))? \{([^}]*)\}"
)
_SOURCE_TARGET_PAIR = re.compile(r"source_target_pairs=\{\{(\d+),(\d+)\}")


def parse_replica_group(attributes: str) -> tuple[int, int]:
    """Return the size and the stride of a collective's first replica group; (1, 1) if it has no groups."""
    if pair := _SOURCE_TARGET_PAIR.search(attributes):
        return 2, abs(int(pair[2]) - int(pair[1])) or 1
    group = _parse_first_group(attributes)
    return max(1, len(group)), group[1] - group[0] if len(group) > 1 else 1


def _parse_first_group(attributes: str) -> list[int]:
    if match := _LIST_GROUPS.search(attributes):
        return _parse_integers(match[1])
    if match := _IOTA_GROUPS.search(attributes):
        groups: list[int] = _device_order(match[2], match[3]).reshape(_parse_integers(match[1]))[0].tolist()
        return groups
    if match := _MESH_GROUPS.search(attributes):
        axes = dict(part.split("=") for part in match[1].split(","))
        sizes = [int(size) for size in axes.values()]
        devices = _device_order(match[2] or str(math.prod(sizes)), match[3]).reshape(sizes)
        group_axes = match[4].split(",")
        group: list[int] = devices[tuple(slice(None) if name in group_axes else 0 for name in axes)].ravel().tolist()
        return group
    return []


def _device_order(shape: str, axes: str | None) -> np.ndarray:
    order = np.arange(math.prod(_parse_integers(shape))).reshape(_parse_integers(shape))
    return order.transpose(_parse_integers(axes)) if axes else order


def _parse_integers(text: str) -> list[int]:
    return [int(n) for n in text.split(",") if n]
