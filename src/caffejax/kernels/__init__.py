"""Operations with an implementation per platform: plain functions of arrays, which layers call.

Each file holds one operation: XLA's implementation, the one for CPUs, and the gradient that both share
(`platform_dispatch.py`, `custom_gradient.py`). Arrays are passed in Caffe's order (batch, channels, *space).
On CPUs the channels are last inside; the transposes between operations cost nothing, because XLA cancels them.

A net has `kernels="fast"`, or "reference": the plain lowering of its layers, for comparison.
"""
