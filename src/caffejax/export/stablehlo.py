"""A net as StableHLO: one function of its inputs, weights included, in the file format of `jax.export`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import jax
from jax import export

from ..atomic import replacing
from ..errors import CaffejaxError, GraphError, Problem
from ..human_readable import in_words
from .inference_model import Subject, any_batch
from .preprocessing import Preprocessing

PLATFORMS = ("cpu", "cuda", "tpu")
_KNOWN = (*PLATFORMS, "rocm")
_MOST_BYTES = (1 << 31) - (1 << 20)  # of a flatbuffer, less what is not the program


def export_stablehlo(
    subject: Subject,
    *,
    platforms: Sequence[str] = PLATFORMS,
    batch: bool = True,
    batch_axis: int = 0,
    preprocessing: Preprocessing | None = None,
) -> export.Exported:
    """Return a net as a function `{input: array}` to `{output: array}`, lowered to StableHLO.

    It contains its weights, and XLA's own operations only. Layers that carry something from pass to pass start at each
    call from what the subject's state holds. Tops whose number of rows depends on the data have as many as there can
    be, those of padding last.

    Args:
        subject: the net with its weights.
        platforms: what it may run on, as JAX calls it.
        batch: whether it takes any number of rows, or those of the net's shapes.
        batch_axis: the axis of the inputs along which rows lie.
        preprocessing: what makes an input of images, which are then taken in its place.

    Raises:
        GraphError: naming every layer that cannot be exported.
        BatchError: naming every layer that cannot take any number of rows.
        CaffejaxError: for platforms that JAX does not know.
    """
    unknown = [name for name in platforms if name not in _KNOWN]
    if unknown or not platforms:
        wrong = ", ".join(map(repr, unknown)) or "none"
        raise CaffejaxError(f"platforms must be some of {', '.join(_KNOWN)}, not {wrong}")
    _check_layers(subject)
    inputs = any_batch(subject, batch_axis) if batch else subject.inputs
    if preprocessing is not None:
        inputs[preprocessing.blob] = preprocessing.images(inputs[preprocessing.blob])
    run = jax.jit(_function(subject, preprocessing), keep_unused=True)  # an input may matter by its shape alone
    with subject.naming_random_layers():
        return export.export(run, platforms=platforms)(inputs)


def write_stablehlo(subject: Subject, path: str | os.PathLike[str], **options: Any) -> export.Exported:
    """Write a net to a file that `jax.export.deserialize` reads, and return what that gives.

    Args:
        subject: the net with its weights.
        path: the file.
        options: as for `export_stablehlo`.

    Raises:
        CaffejaxError: as `export_stablehlo` does; if the file cannot be written or would be too large, or the package
            flatbuffers is missing.
    """
    require_package("flatbuffers", "jax.export serialises with")
    exported = export_stablehlo(subject, **options)
    if (size := len(exported.mlir_module_serialized)) > _MOST_BYTES:
        message = (
            f"takes {in_words(size)}, nearly all of it weights; a file of jax.export holds {in_words(_MOST_BYTES)}"
        )
        raise CaffejaxError(Problem(message, os.fspath(path)))
    with replacing(path) as file:
        file.write(exported.serialize(vjp_order=0))
    return exported


def _check_layers(subject: Subject) -> None:
    """Raise `GraphError` naming every layer that cannot be exported."""
    reasons = [(layer, layer.type.unsupported.get("export")) for layer in subject.layers]
    remedy = "cut the net before it with --outputs"
    if problems := [layer.problem(f"cannot be exported: {reason}; {remedy}") for layer, reason in reasons if reason]:
        raise GraphError(problems)


def _function(subject: Subject, preprocessing: Preprocessing | None) -> Any:
    """Return the function, called as the net is, which is what messages about it say."""

    def run(inputs: dict[str, jax.Array]) -> dict[str, jax.Array]:
        if preprocessing is not None:
            inputs = inputs | {preprocessing.blob: preprocessing(inputs[preprocessing.blob])}
        return subject.run(inputs)

    run.__name__ = run.__qualname__ = subject.net.graph.name or "net"
    return run


def require_package(name: str, purpose: str) -> None:
    """Check that a package is there.

    Args:
        name: the package.
        purpose: what it is needed for, in words.

    Raises:
        CaffejaxError: naming the extra that brings it.
    """
    try:
        import_module(name)
    except ImportError as error:
        message = f"the package {name}, which {purpose}, is missing: pip install 'caffejax[export]'"
        raise CaffejaxError(message) from error
