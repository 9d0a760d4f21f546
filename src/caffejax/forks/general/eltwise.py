"""FlowNet 2's variant of Eltwise, which scales one bottom."""

from __future__ import annotations

from typing import Any

from jax import Array

from ...base.errors import require
from ...core.layers.context import Context
from ...core.layers.eltwise import check_eltwise, eltwise
from ...core.layers.registry import register_variants
from ...core.schema.caffe_pb2 import EltwiseParameter


@eltwise.variant(bottoms=1, top_shapes=None, origin="FlowNet 2")
def scaled_bottom(p: EltwiseParameter, x: Array) -> Array:
    """Multiply the only bottom by `coeff`, which is 1 if it is not set. The operation must be SUM."""
    return _coefficient(p) * x


@scaled_bottom.backward
def scaled_bottom_backward(p: EltwiseParameter, x: Array, *, y: Any, dy: Array) -> Array:
    return _coefficient(p) * dy


@scaled_bottom.check
def check_scaled_bottom(p: EltwiseParameter, *, ctx: Context) -> None:
    check_eltwise(p, ctx=ctx)
    operation = p.EltwiseOp.Name(p.operation)
    require(p.operation == p.SUM, f"operation {operation} needs 2 bottoms or more, but there is 1")


def _coefficient(p: EltwiseParameter) -> float:
    return p.coeff[0] if p.coeff else 1.0


register_variants(
    "Eltwise",
    lambda layer: "of one bottom" if len(layer.bottom) == 1 else None,
    {"of one bottom": scaled_bottom.type},
    "With one bottom it is scaled (FlowNet 2).",
)
