"""OpenCV 4's numbers of backends and targets, some of which OpenCV 5 no longer has."""

from __future__ import annotations

DNN_BACKEND_DEFAULT, DNN_BACKEND_HALIDE, DNN_BACKEND_INFERENCE_ENGINE, DNN_BACKEND_OPENCV = range(4)
DNN_BACKEND_VKCOM, DNN_BACKEND_CUDA, DNN_BACKEND_WEBNN, DNN_BACKEND_TIMVX, DNN_BACKEND_CANN = range(4, 9)
DNN_TARGET_CPU, DNN_TARGET_OPENCL, DNN_TARGET_OPENCL_FP16, DNN_TARGET_MYRIAD, DNN_TARGET_VULKAN = range(5)
DNN_TARGET_FPGA, DNN_TARGET_CUDA, DNN_TARGET_CUDA_FP16, DNN_TARGET_HDDL, DNN_TARGET_NPU = range(5, 10)
DNN_TARGET_CPU_FP16 = 10

CONSTANTS = {name: value for name, value in globals().items() if name.startswith("DNN_")}


def name_constant(prefix: str, number: int) -> str:
    """Return the name of the constant with this number, or the number if no constant with the prefix has it."""
    names = (name for name, value in CONSTANTS.items() if name.startswith(prefix) and value == number)
    return next(names, str(number))
