"""Operations that layers call, with an implementation for each platform.

An operation has an implementation in plain XLA operations, an implementation for CPUs, and a gradient for both (see
`platform_dispatch.py` and `custom_gradient.py`). Arguments and results have Caffe's order of axes, (batch, channels,
*space). The implementations for CPUs transpose to channels last; XLA cancels the transposes between operations.

A net with `kernels="fast"` uses these operations. A net with "reference" uses plain XLA operations, for comparison.
"""
