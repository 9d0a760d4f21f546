"""Print, as JSON, the collectives of training steps that are compiled for eight simulated devices.

Each is [kind, bytes of the result, devices in a group], found in the compiled text by an independent pattern.
"""

import json
import math
import os
import re
import sys
from typing import Any

PARALLEL_OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "stop votes": {},
    "sync_bn": {},
    "optimizer": {"shard": "optimizer"},
    "params": {"shard": "params"},
    "model": {"model": 2},
}
# counted in what is lowered, as this machine's compiler adds up bfloat16 in float32: precision and reduce_dtype
REDUCED_CASES: dict[str, Any] = {
    "float32": ("float32", "auto"),
    "bfloat16": ("bfloat16", "auto"),
    "bfloat16 kept": ("bfloat16", "float32"),
}
CASES = [*(("lenet", mode) for mode in PARALLEL_OPTIONS), ("resnet", "plain"), ("resnet", "sync_bn")]
# what is compiled here does not run: its speed is of no interest
_XLA_FLAGS = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"
BYTES = {"f32": 4, "s32": 4, "u32": 4, "pred": 1}


def find_collectives(text: str) -> list[tuple[str, int, int]]:
    """Return all collectives of a compiled program."""
    result = []
    for shape, kind, attributes in re.findall(
        r" = (\(?[a-z]\w*\[.*?) (all-[a-z]+|reduce-scatter|collective-permute)\((.*)", text
    ):
        size = 0
        for dtype, dims in re.findall(r"(\w+)\[([\d,]*)\]", shape):
            count = BYTES[dtype]
            for n in filter(None, dims.split(",")):
                count *= int(n)
            size += count
        group_list = re.search(r"replica_groups=\{\{([\d,]*)\}", attributes)
        iota_groups = re.search(r"replica_groups=\[\d+,(\d+)\]", attributes)
        mesh_groups = re.search(r"replica_groups=mesh\[([^\]]*)\][^{]*\{([^}]*)\}", attributes)
        group_size = len(group_list[1].split(",")) if group_list else int(iota_groups[1]) if iota_groups else 0
        if mesh_groups:
            sizes = dict(axis.split("=") for axis in mesh_groups[1].split(","))
            group_size = math.prod(int(sizes[axis.strip()]) for axis in mesh_groups[2].split(","))
        result.append((kind, size, group_size))
    return result


def count_reduced_numbers(text: str) -> dict[str, int]:
    """Return how many numbers of each dtype a lowered program all-reduces."""
    result: dict[str, int] = {}
    for shape, dtype in re.findall(r"stablehlo\.all_reduce.*?\}\) : \(tensor<((?:\d+x)*)(\w+)>", text, re.DOTALL):
        result[dtype] = result.get(dtype, 0) + math.prod(map(int, shape.split("x")[:-1]))
    return result


def main() -> None:
    """Compile each net in each parallel mode."""
    os.environ |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": _XLA_FLAGS}
    import jax
    from planned_nets import LENET, make_resnet

    from caffejax import Net, Parallel
    from caffejax.core.parallel.multihost import Requests
    from caffejax.tools.planning import parse_target, planner
    from caffejax.tools.planning.planner import SGD

    planner.get_devices = lambda target: jax.devices()[: target.devices]  # type: ignore[assignment]
    result = {}
    for name, text in (("lenet", LENET), ("resnet", make_resnet())):
        for mode, options in PARALLEL_OPTIONS.items():
            if (name, mode) not in CASES:
                continue
            net = Net(text, "TRAIN", sync_bn=mode == "sync_bn")
            job = planner.CompileJob(net, parse_target("tpu:v5e:2x4"), SGD, Parallel(**options), 0, print)
            function, arguments, jit_options = job.make_function(8)
            votes = (Requests(job.mesh).encode(0),) if mode == "stop votes" else ()
            compiled = jax.jit(function, **jit_options).lower(*arguments, *votes).compile()
            program_collectives = planner.get_compiled_stats(compiled).collectives
            result[f"{name} {mode}"] = {
                "expected": find_collectives(compiled.as_text()),
                "counted": [[c.kind, c.bytes, c.group_size] for c in program_collectives for _ in range(c.count)],
            }
    for name, (precision, dtype) in REDUCED_CASES.items():
        net = Net(LENET, "TRAIN", precision=precision)
        job = planner.CompileJob(net, parse_target("tpu:v5e:2x4"), SGD, Parallel(reduce_dtype=dtype), 0, print)
        function, arguments, jit_options = job.make_function(8)
        result[f"reduced {name}"] = count_reduced_numbers(jax.jit(function, **jit_options).lower(*arguments).as_text())
    sys.stdout.write(json.dumps(result))


if __name__ == "__main__":
    main()
