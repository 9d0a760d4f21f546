"""Operations with an implementation for each platform: functions of arrays, which layers call.

Each file holds one operation: its implementation by XLA's operations, the one for CPUs, and the gradient that both
share (`platform_dispatch.py`, `custom_gradient.py`). Arrays are passed in Caffe's order (batch, channels, *space). The
implementations for CPUs have the channels last; XLA cancels the transposes between operations.

`kernels="fast"` uses these operations in a net; "reference" uses plain XLA operations, for comparison.
"""
