"""Strides that are moved to earlier layers, compared with the plain lowering."""

from __future__ import annotations

from typing import Any

import pytest
from frozen_nets import assert_frozen_net_equals_net, make_net_text

from caffejax.cpu.frozen.program_builder import hoist_strides
from caffejax.cpu.kernels import onednn_program
from caffejax.cpu.kernels.onednn_program import Operation

STAGE = [  # the end of one stage of a ResNet, and the beginning of the next
    "a Convolution x | num_output: 32 kernel_size: 1",
    "b Convolution a | num_output: 16 kernel_size: 1",
    "c Convolution b | num_output: 16 kernel_size: 3 pad: 1",
    "c ReLU c |",
    "d Convolution c | num_output: 32 kernel_size: 1",
    "s Eltwise a d | operation: SUM",
    "s ReLU s |",
    "e Convolution s | num_output: 32 kernel_size: 1 stride: 2",
    "f Convolution s | num_output: 32 kernel_size: 1 stride: 2",
    "y Eltwise e f | operation: SUM",
]
SIZES = [(7, 8), (1, 2), (9, 5)]
ADDITIONAL_READERS: dict[str, list[str]] = {  # what else reads the sum
    "alone": [],
    "whole": ["t TanH s |"],
    "another stride": ["t Convolution s | num_output: 8 kernel_size: 1 stride: 3"],
    "larger kernel": ["t Convolution s | num_output: 8 kernel_size: 3 stride: 2"],
    "padded": ["t Convolution s | num_output: 8 kernel_size: 1 stride: 2 pad: 1"],
}


@pytest.mark.skipif(not onednn_program.is_available(), reason="needs oneDNN")
@pytest.mark.parametrize(
    ("size", "reader"),
    [(size, reader) for size in SIZES for reader in ADDITIONAL_READERS if min(size) > 2 or reader != "larger kernel"],
    ids=str,
)
def test_hoisted_strides_give_equal_outputs(size: tuple[int, int], reader: str) -> None:
    reader_layers = ADDITIONAL_READERS[reader]
    tops = ["y", *(["t"] if reader_layers else [])]
    assert_frozen_net_equals_net(make_net_text((2, 16, *size), *STAGE, *reader_layers), tops)


@pytest.mark.skipif(not onednn_program.is_available(), reason="needs oneDNN")
def test_outputs_are_computed_in_full() -> None:
    assert_frozen_net_equals_net(make_net_text((1, 16, 8, 8), *STAGE), ["s", "y"])


WEIGHTS = [(16, 16, 3, 3), (16, 16, 1, 1)]


def make_convolution(
    input_number: int, weight: int, stride: int, out_size: int, epilogue: list[Any] | None = None
) -> Operation:
    pad = (1, 1) if weight == 0 else (0, 0)
    fields = {"in": [input_number], "weight": weight, "stride": (stride, stride), "low": pad, "high": pad}
    return Operation("convolution", fields, (1, 16, out_size, out_size), epilogue or [])


def test_strides_are_hoisted_up_to_a_value_with_other_readers() -> None:
    """Two convolutions and their sum take over the stride; the added value is subsampled."""
    operations = [
        make_convolution(0, 0, 1, 9),
        make_convolution(1, 0, 1, 9),
        make_convolution(2, 1, 1, 9, [("plus", {"value": 1}), ("relu", {"a": 0.0, "b": 0.0})]),
        make_convolution(3, 1, 2, 5),
    ]
    hoisted, value_numbers = hoist_strides(operations, [(1, 16, 9, 9)], WEIGHTS, [4])
    assert [(o.name, o.out_shape[2], tuple(o.fields["stride"])) for o in hoisted] == [  # type: ignore[arg-type]
        ("convolution", 9, (1, 1)),
        ("convolution", 5, (2, 2)),
        ("mean", 5, (2, 2)),
        ("convolution", 5, (1, 1)),
        ("convolution", 5, (1, 1)),
    ]
    assert value_numbers == [0, 1, 2, 4, 5]
    assert hoisted[3].epilogue[0] == ("plus", {"value": 3})
    assert hoisted[4].fields["in"] == [4]
    assert [o.fields["stride"] for o in operations] == [(1, 1), (1, 1), (1, 1), (2, 2)], "given operations are changed"
