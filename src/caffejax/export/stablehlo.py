"""Export to StableHLO: one function of the net's inputs that contains the weights, in the format of `jax.export`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import jax
from jax import export

from ..atomic_write import replace_file
from ..errors import CaffejaxError, GraphError, Problem
from ..human_readable import format_bytes
from .inference_model import InferenceModel, symbolic_batch_shapes
from .preprocessing import Preprocessing

PLATFORMS = ("cpu", "cuda", "tpu")
_PLATFORMS = (*PLATFORMS, "rocm")
_MAX_BYTES = (1 << 31) - (1 << 20)  # a flatbuffer holds 2 GiB; 1 MiB is reserved for its other fields


def export_stablehlo(
    model: InferenceModel,
    *,
    platforms: Sequence[str] = PLATFORMS,
    batch: bool = True,
    batch_axis: int = 0,
    preprocessing: Preprocessing | None = None,
) -> export.Exported:
    """Lower a net to StableHLO, as a function from `{input: array}` to `{output: array}`.

    The function contains the weights, and only XLA's standard operations. Recurrent layers that carry state between
    passes start each call from the subject's state. Tops with a data-dependent number of rows are padded to the
    maximum; the padded rows come last.

    Args:
        subject: the net with its weights.
        platforms: the platforms to lower for: some of "cpu", "cuda", "tpu" and "rocm".
        batch: True for a symbolic batch size, False for the batch size of the net.
        batch_axis: the axis of the inputs that is the batch.
        preprocessing: preprocessing to include in the function; its input then takes uint8 images.

    Raises:
        GraphError: naming every layer that cannot be exported.
        BatchError: naming every layer that does not support a symbolic batch size.
        CaffejaxError: for platforms that JAX does not know.
    """
    unknown = [name for name in platforms if name not in _PLATFORMS]
    if unknown or not platforms:
        received = ", ".join(map(repr, unknown)) or "none"
        raise CaffejaxError(f"platforms must be some of {', '.join(_PLATFORMS)}, not {received}")
    _check_layers(model)
    inputs = symbolic_batch_shapes(model, batch_axis) if batch else model.inputs
    if preprocessing is not None:
        inputs[preprocessing.blob] = preprocessing.images(inputs[preprocessing.blob])
    run = jax.jit(_function(model, preprocessing), keep_unused=True)  # an input may be used for its shape only
    with model.report_random_layers():
        return export.export(run, platforms=platforms)(inputs)


def write_stablehlo(model: InferenceModel, path: str | os.PathLike[str], **options: Any) -> export.Exported:
    """Export a net to a file that `jax.export.deserialize` reads.

    Args:
        subject: the net with its weights.
        path: the file.
        options: as for `export_stablehlo`.

    Returns:
        The exported function.

    Raises:
        CaffejaxError: as for `export_stablehlo`, and if the file cannot be written, if it would exceed the 2 GiB of a
            flatbuffer, or if the package flatbuffers is missing.
    """
    require_package("flatbuffers", "jax.export serialises with")
    exported = export_stablehlo(model, **options)
    if (size := len(exported.mlir_module_serialized)) > _MAX_BYTES:
        limit = format_bytes(_MAX_BYTES)
        message = f"takes {format_bytes(size)}, mostly weights; the format of jax.export is limited to {limit}"
        raise CaffejaxError(Problem(message, os.fspath(path)))
    with replace_file(path) as file:
        file.write(exported.serialize(vjp_order=0))
    return exported


def _check_layers(model: InferenceModel) -> None:
    """Raise `GraphError` naming every layer that cannot be exported."""
    reasons = [(layer, layer.type.unsupported.get("export")) for layer in model.layers]
    remedy = "cut the net before it with --outputs"
    if problems := [layer.problem(f"cannot be exported: {reason}; {remedy}") for layer, reason in reasons if reason]:
        raise GraphError(problems)


def _function(model: InferenceModel, preprocessing: Preprocessing | None) -> Any:
    """Return the function of the inputs to lower. Its name is the net's name, which appears in JAX's messages."""

    def run(inputs: dict[str, jax.Array]) -> dict[str, jax.Array]:
        if preprocessing is not None:
            inputs = inputs | {preprocessing.blob: preprocessing(inputs[preprocessing.blob])}
        return model.run(inputs)

    run.__name__ = run.__qualname__ = model.net.graph.name or "net"
    return run


def require_package(name: str, purpose: str) -> None:
    """Check that a package is installed.

    Args:
        name: the package.
        purpose: its use, as a clause for the message, such as "writes models".

    Raises:
        CaffejaxError: with the command that installs it, if the package is missing.
    """
    try:
        import_module(name)
    except ImportError as error:
        message = f"the package {name}, which {purpose}, is missing: pip install flatbuffers onnx safetensors"
        raise CaffejaxError(message) from error
