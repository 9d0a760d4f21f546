"""Operations in the formulation that runs fastest: plain functions of arrays, which layers call.

One file per operation. Arrays come and go in Caffe's order (batch, channels, space); inside, channels are last. The
transposes at the seams cost nothing: XLA cancels them through whatever lies between two operations.

A net has `kernels="fast"`, or "reference": the plain lowering of its layers, to compare with. These functions are
for the former, and each file chooses the formulation by shape in one place.
"""

from __future__ import annotations

from typing import Literal, get_args

Kernels = Literal["fast", "reference"]
CHOICES: tuple[Kernels, ...] = get_args(Kernels)
