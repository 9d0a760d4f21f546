"""Counts of operations and bytes in the text of compiled programs, compared with known counts."""

import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax.tools.planning import get_compiled_stats
from caffejax.tools.planning.hlo import Collective, parse_stats
from compile_flags import make_cpu_devices_environment

N = 1 << 16
X = jax.ShapeDtypeStruct((N,), jnp.float32)


def compile_stats(function: Any, *arguments: Any) -> Any:
    return get_compiled_stats(jax.jit(function).lower(*arguments).compile())


def test_an_operation_reads_its_operands_and_writes_its_result() -> None:
    result = compile_stats(lambda x, y: x * y + jnp.exp(x), X, X)
    assert result.traffic == 3 * 4 * N
    assert (result.argument_bytes, result.result_bytes) == (2 * 4 * N, 4 * N)
    assert (result.collectives, result.num_host_calls, result.num_float64) == ((), 0, 0)


def test_a_loop_counts_as_often_as_it_runs() -> None:
    def run(x: jax.Array, n: int) -> Any:
        return jax.lax.fori_loop(0, n, lambda i, y: jnp.sort(y), x)

    short_traffic, long_traffic = (compile_stats(lambda x, n=n: run(x, n), X).traffic for n in (10, 30))
    assert 2.5 < long_traffic / short_traffic <= 3


def test_calls_to_the_host_and_float64_are_counted() -> None:
    def call_host(x: jax.Array) -> jax.Array:
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    assert compile_stats(call_host, X).num_host_calls == 1
    with jax.enable_x64(True):
        assert compile_stats(jnp.cumsum, jax.ShapeDtypeStruct((100,), jnp.float64)).num_float64


def test_collectives_are_counted_by_size() -> None:
    code = """
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from caffejax.tools.planning import get_compiled_stats
rows = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), PartitionSpec("data"))
x = jax.ShapeDtypeStruct((64, 1000), "float32", sharding=rows)
stats = get_compiled_stats(jax.jit(lambda x: x.sum(0)).lower(x).compile())
print(stats.num_collectives, stats.collectives[0])
"""
    environment = os.environ | make_cpu_devices_environment(8)
    process = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert process.stdout.strip() == f"1 {Collective('all-reduce', 4000, 1, group_size=8)}"


PROGRAM_TEXT = """HloModule m, is_scheduled=true

%taking (param_0.1: f32[10,1000], param_1.1: s32[]) -> f32[1,1000] {
  %param_0.1 = f32[10,1000]{1,0} parameter(0)
  %param_1.1 = s32[] parameter(1)
  %zero = s32[] constant(0)
  ROOT %row = f32[1,1000]{1,0} dynamic-slice(%param_0.1, %param_1.1, %zero), dynamic_slice_sizes={1,1000}
}

%putting (param_0.2: f32[10,1000], param_1.2: f32[1,1000], param_2.2: s32[]) -> f32[10,1000] {
  %param_0.2 = f32[10,1000]{1,0} parameter(0)
  %param_1.2 = f32[1,1000]{1,0} parameter(1)
  %param_2.2 = s32[] parameter(2)
  %zero.2 = s32[] constant(0)
  ROOT %put = f32[10,1000]{1,0} dynamic-update-slice(%param_0.2, %param_1.2, %param_2.2, %zero.2)
}

%body (state: (s32[], f32[10,1000])) -> (s32[], f32[10,1000]) {
  %state = (s32[], f32[10,1000]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %x = f32[10,1000]{1,0} get-tuple-element(%state), index=1
  %row.1 = f32[1,1000]{1,0} fusion(%x, %i), kind=kLoop, calls=%taking, metadata={op_name="a/b"}
  %put.1 = f32[10,1000]{1,0} fusion(%x, %row.1, %i), kind=kLoop, calls=%putting
  ROOT %next = (s32[], f32[10,1000]{1,0}) tuple(%i, %put.1)
}

ENTRY %main (p: f32[10,1000], q: bf16[4,8]) -> f32[10,1000] {
  %p = f32[10,1000]{1,0:T(8,128)} parameter(0)
  %q = bf16[4,8]{1,0:T(8,128)(2,1)} parameter(1)
  %fast = bf16[4,8]{1,0:T(8,128)(2,1)S(1)} convert(%q)
  %start = (f32[10,1000]{1,0}, f32[40,1000]{1,0}) all-gather-start(%p), dimensions={0}
  %gathered = f32[40,1000]{1,0} all-gather-done(%start)
  %begun = (f32[10,1000]{1,0:S(1)}, f32[10,1000]{1,0}, u32[]) copy-start(%p)
  %near = f32[10,1000]{1,0:S(1)} copy-done(%begun)
  %zero.3 = s32[] constant(0)
  %first = (s32[], f32[10,1000]{1,0}) tuple(%zero.3, %p)
  %loop = (s32[], f32[10,1000]{1,0}) while(%first), body=%body, backend_config={"known_trip_count":{"n":"7"}}
  ROOT %result = f32[10,1000]{1,0} get-tuple-element(%loop), index=1
}
"""


def test_slices_on_chip_memory_and_async_starts_are_counted() -> None:
    """Slices count the bytes that they read, on-chip memory is free, and asynchronous operations count once."""
    row, full_array = 4 * 1000, 4 * 10_000
    loop = 7 * ((2 * row + 4) + (2 * row + 4))
    conversion, gather, copy = 4 * 8 * 2, 2 * 4 * full_array, full_array
    result = parse_stats(PROGRAM_TEXT)
    assert result["traffic"] == loop + conversion + gather + copy
    assert result["collectives"] == (Collective("all-gather", 4 * full_array, 1),)
    assert (result["num_fusions"], result["num_copies"]) == (2, 1)


@pytest.mark.parametrize(
    ("results", "target", "num_bytes"),
    [
        ("(bf16[64,16]{1,0}, s8[33554432]{0})", "__cublas$lt$matmul", 2 * 64 * 16),
        ("(bf16[64,16]{1,0}, u8[4096]{0})", "__cudnn$convForward", 2 * 64 * 16),
        ("(bf16[64,16]{1,0}, u8[4096]{0})", "sort", 2 * 64 * 16 + 4096),
        ("u8[4096]{0}", "__cublas$gemm", 4096),
    ],
)
def test_workspaces_of_library_calls_are_not_traffic(results: str, target: str, num_bytes: int) -> None:
    text = (
        "ENTRY %m (p: bf16[64,8]) -> bf16[64,16] {\n  %p = bf16[64,8]{1,0} parameter(0)\n"
        f'  %product = {results} custom-call(%p, %p), custom_call_target="{target}", backend_config={{}}\n}}\n'
    )
    assert parse_stats(text)["traffic"] == 2 * 2 * 64 * 8 + num_bytes


@pytest.mark.parametrize(
    ("shape", "opcode", "attributes", "collective"),
    [
        ("f32[10]", "all-reduce-start", "replica_groups={{0,2,4,6},{1,3,5,7}}", ("all-reduce", 40, 4, 2)),
        ("f32[10]", "all-reduce", "replica_groups=[4,2]<=[8]", ("all-reduce", 40, 2, 1)),
        ("(f32[10], f32[2])", "all-reduce", "replica_groups=[2,4]<=[4,2]T(1,0)", ("all-reduce", 48, 4, 2)),
        ("(f32[2], f32[16])", "all-gather-start", "replica_groups=mesh['a'=8,'b'=1] {'a'}", ("all-gather", 64, 8, 1)),
        (
            "f32[16]",
            "all-gather",
            "replica_groups=mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'a'}",
            ("all-gather", 64, 2, 1),
        ),
        (
            "((f32[8], f32[16]), (f32[1], f32[2]))",
            "reduce-scatter-start",
            "replica_groups={{0,1,2,3,4,5,6,7}}",
            ("reduce-scatter", 12, 8, 1),
        ),
        (
            "(bf16[6], bf16[6], u32[], u32[])",
            "collective-permute-start",
            "source_target_pairs={{0,4},{4,0}}",
            ("collective-permute", 12, 2, 4),
        ),
    ],
)
def test_replica_groups_of_collectives(
    shape: str, opcode: str, attributes: str, collective: tuple[str, int, int, int]
) -> None:
    text = f"ENTRY %m (p: f32[8]) -> f32[8] {{\n  ROOT %c = {shape} {opcode}(%p), channel_id=1, {attributes}\n}}\n"
    kind, size, group_size, group_stride = collective
    assert parse_stats(text)["collectives"] == (Collective(kind, size, 1, group_size, group_stride),)


FUSED_TEXT = """HloModule m

%all-reduce-scatter (input: f32[500,800]) -> f32[500,100] {
  %input = f32[500,800]{0,1} parameter(0)
  %zero = s32[] constant(0)
  %all-reduce = f32[500,800]{0,1:T(8,128)} all-reduce(%input), replica_groups={{0,1,2,3,4,5,6,7}}, to_apply=%sum
  ROOT %slice = f32[500,100]{0,1:S(1)} dynamic-slice(%all-reduce, %zero, %zero), dynamic_slice_sizes={500,100}
}

ENTRY %main (p: f32[500,800]) -> f32[500,100] {
  %p = f32[500,800]{0,1} parameter(0)
  ROOT %fusion = f32[500,100]{0,1:S(1)} fusion(%p), kind=kCustom, calls=%all-reduce-scatter
}
"""


def test_a_sum_of_which_each_device_takes_a_slice_is_a_reduce_scatter() -> None:
    assert parse_stats(FUSED_TEXT)["collectives"] == (Collective("reduce-scatter", 4 * 500 * 100, 1, group_size=8),)


def test_text_that_is_not_a_program_counts_as_zero() -> None:
    assert parse_stats("")["traffic"] == 0
    assert parse_stats("ENTRY %x (a: f32[]) -> f32[] {\n  garbage\n}\n")["num_fusions"] == 0
