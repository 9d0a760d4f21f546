"""Operations in the formulation that suits the platform: plain functions of arrays, which layers call.

One file per operation, which says what XLA's own formulation is, what a CPU's, and what gradient both have
(`operation.py`, `gradient.py`). Arrays come and go in Caffe's order (batch, channels, space). On CPUs the channels are
last inside; the transposes at the seams cost nothing: XLA cancels them through whatever lies between two operations.

A net has `kernels="fast"`, or "reference": the plain lowering of its layers, to compare with.
"""
