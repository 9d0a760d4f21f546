"""Export to StableHLO in the format of `jax.export`: a function of the net's inputs that contains the weights."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import jax
from jax import export

from ..base.atomic_write import replace_file
from ..base.errors import CaffejaxError, GraphError, Problem
from ..base.human_readable import format_bytes
from .inference_model import InferenceModel, symbolic_batch_shapes
from .uint8_input import Uint8Preprocessing

PLATFORMS = ("cpu", "cuda", "tpu")
_SUPPORTED_PLATFORMS = (*PLATFORMS, "rocm")
_MAX_BYTES = (1 << 31) - (1 << 20)  # the limit of a flatbuffer is 2 GiB; 1 MiB is reserved for other fields


def export_stablehlo(
    model: InferenceModel,
    *,
    platforms: Sequence[str] = PLATFORMS,
    symbolic_batch: bool = True,
    batch_axis: int = 0,
    preprocessing: Uint8Preprocessing | None = None,
) -> export.Exported:
    """Lower a net to StableHLO, as a function from `{input: array}` to `{output: array}`.

    The function contains the weights and uses only standard operations. Recurrent layers that carry state between
    passes start each call from the state in `model.variables`. Outputs whose number of rows depends on the data are
    padded to the maximum number of rows, and padding rows come last.

    Args:
        model: the net with its weights.
        platforms: the platforms for which the function is lowered: one or more of "cpu", "cuda", "tpu" and "rocm".
        symbolic_batch: True for a symbolic batch size, which is chosen at run time, or False for the batch size of the
            net.
        batch_axis: the batch axis of the inputs.
        preprocessing: the image preprocessing to include in the function, whose input then takes uint8 images, or None.

    Raises:
        GraphError: if layers cannot be exported. The message names each of them.
        BatchError: if layers do not support a symbolic batch size. The message names each of them.
        CaffejaxError: if JAX does not support a platform.
    """
    unknown_platforms = [name for name in platforms if name not in _SUPPORTED_PLATFORMS]
    if unknown_platforms or not platforms:
        names = ", ".join(map(repr, unknown_platforms)) or "none"
        raise CaffejaxError(f"platforms must be one or more of {', '.join(_SUPPORTED_PLATFORMS)}, not {names}")
    _check_layers(model)
    blobs = symbolic_batch_shapes(model, batch_axis) if symbolic_batch else model.inputs
    inputs = {name: blobs[name] for name in model.inputs}
    if preprocessing is not None:
        inputs[preprocessing.input_name] = preprocessing.image_spec(inputs[preprocessing.input_name])
    run = jax.jit(_make_function(model, preprocessing), keep_unused=True)  # an input may be used for its shape only
    with model.report_random_layers():
        return export.export(run, platforms=platforms)(inputs)


def write_stablehlo(model: InferenceModel, path: str | os.PathLike[str], **options: Any) -> export.Exported:
    """Export a net to a file that `jax.export.deserialize` reads.

    Args:
        model: the net with its weights.
        path: the path of the file.
        options: the keyword arguments of `export_stablehlo`.

    Returns:
        The exported function.

    Raises:
        CaffejaxError: see `export_stablehlo`; also if the file cannot be written or would exceed 2 GiB, or if the
            package flatbuffers is missing.
    """
    require_package("flatbuffers", "jax.export serialises with")
    exported = export_stablehlo(model, **options)
    if (size := len(exported.mlir_module_serialized)) > _MAX_BYTES:
        limit = format_bytes(_MAX_BYTES)
        message = (
            f"would take {format_bytes(size)}, mostly weights, but the format of jax.export is limited to {limit}; "
            "export to ONNX or flax, which have no such limit"
        )
        raise CaffejaxError(Problem(message, os.fspath(path)))
    with replace_file(path) as file:
        file.write(exported.serialize(vjp_order=0))
    return exported


def _check_layers(model: InferenceModel) -> None:
    """Raise a `GraphError` that names all layers that cannot be exported, if there are any."""
    layers_and_reasons = [(layer, layer.type.unsupported.get("export")) for layer in model.layers]
    hint = "end the net before it with --outputs"
    if problems := [
        layer.make_problem(f"cannot be exported: {reason}; {hint}") for layer, reason in layers_and_reasons if reason
    ]:
        raise GraphError(problems)


def _make_function(model: InferenceModel, preprocessing: Uint8Preprocessing | None) -> Any:
    """Return the function to lower, from `{input: array}` to `{output: array}`.

    It has the net's name, because JAX's messages contain the name of the function.
    """

    def run(inputs: dict[str, jax.Array]) -> dict[str, jax.Array]:
        if preprocessing is not None:
            inputs = inputs | {preprocessing.input_name: preprocessing(inputs[preprocessing.input_name])}
        return model.run(inputs)

    run.__name__ = run.__qualname__ = model.net.graph.name or "net"
    return run


def require_package(name: str, purpose: str) -> None:
    """Check that a package is installed.

    Args:
        name: the package.
        purpose: what the package does, as a clause for the message, such as "writes models".

    Raises:
        CaffejaxError: if the package is missing. The message contains the command that installs it.
    """
    try:
        import_module(name)
    except ImportError as error:
        message = f"the package {name}, which {purpose}, is missing: pip install flatbuffers onnx safetensors"
        raise CaffejaxError(message) from error
