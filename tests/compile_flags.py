"""XLA flags that compile programs of tests quickly. This module must not import JAX, which reads them at its import."""

import os
from importlib.metadata import version

# A program of a test is compiled in far more time than it runs. Without LLVM's optimizations and the emitters of fused
# loops, which go through MLIR, it takes less than half the time, and computes the same but for roundings. Without these
# emitters, dividing a program into modules for several threads takes as long again as compiling it.
FLAGS = {
    "--xla_backend_optimization_level": "0",
    "--xla_llvm_disable_expensive_passes": "true",
    "--xla_cpu_use_fusion_emitters": "false",
    "--xla_cpu_parallel_codegen_split_count": "1",
}
if tuple(map(int, version("jaxlib").split(".")[:2])) >= (0, 11):
    del FLAGS["--xla_cpu_use_fusion_emitters"]  # a process with a flag that its XLA does not know ends at once


def make_xla_flags(*extra_flags: str) -> str:
    """A value for `XLA_FLAGS`: these flags, unless the environment has them set otherwise, and others."""
    unset_flags = [f"{name}={value}" for name, value in FLAGS.items() if name not in os.environ.get("XLA_FLAGS", "")]
    return " ".join([os.environ.get("XLA_FLAGS", ""), *unset_flags, *extra_flags]).strip()


def make_optimized_environment() -> dict[str, str]:
    """The environment without these flags: for programs that run far longer than they are compiled."""
    other_flags = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if flag.partition("=")[0] not in FLAGS]
    return os.environ | {"XLA_FLAGS": " ".join(other_flags)}


def make_cpu_devices_environment(count: int) -> dict[str, str]:
    """The environment of a process whose JAX sees a CPU as that many devices."""
    return {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": make_xla_flags(f"--xla_force_host_platform_device_count={count}")}
