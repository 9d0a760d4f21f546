"""What JAX does with functions. Tests ask it of every layer type whose registration does not say that it cannot."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

Question = Literal["jit", "jvp", "second", "vmap", "shard", "shard_map", "joined", "export", "symbolic_batch"]
QUESTIONS: Mapping[Question, str] = MappingProxyType(
    {
        "jit": "be compiled with `jax.jit`",
        "jvp": "be differentiated forwards (`jax.jvp`)",
        "second": "be differentiated twice",
        "vmap": "be batched with `jax.vmap`",
        "shard": "be split by rows over devices with `jax.jit`, each seeing only its own",
        "shard_map": "be mapped over devices with `jax.shard_map`",
        "joined": "take the batches of several devices for one, as `axis_name` says",
        "export": "be exported with `jax.export`",
        "symbolic_batch": "be exported for any number of rows",
    }
)
OWN_IMAGES = "rows carry the number that their image has in the device's own batch, and padding comes after them"
ON_HOST = "it runs on the host, between what is compiled"
