"""The params of layers that multiply by a weight."""

from __future__ import annotations

from typing import Any

from .context import ParamSpec, Shape


def weight_and_bias(p: Any, shape: Shape) -> list[ParamSpec]:
    """Declare a weight of this shape, and a bias (num_output,) if there is one; `p` is the layer's own message."""
    weight = ParamSpec(shape, p.weight_filler)
    return [weight, ParamSpec((p.num_output,), p.bias_filler)] if p.bias_term else [weight]
