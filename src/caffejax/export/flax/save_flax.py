"""Export of a net to a folder with flax source, weights and a README."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ...base.errors import CaffejaxError, Problem
from ...core.checkpoints.array_files import write_safetensors
from ..inference_model import InferenceModel
from .codegen import generate_source, make_net_class_name, name_modules
from .collapse_repeats import collapse_to_lists, extract_blocks
from .ir import Program, sanitize_docstring
from .lower import lower

WeightFormat = Literal["safetensors", "orbax"]


def write_flax(
    model: InferenceModel, folder: str | os.PathLike[str], *, weight_format: WeightFormat = "safetensors"
) -> None:
    """Write a net as flax source that runs and trains without caffejax.

    The folder contains `model.py` with the net's class and the function `load`, the weights, and `README.md` with
    instructions.

    Args:
        model: the net with its weights.
        folder: the folder. It is created if it does not exist; an existing folder must be empty.
        weight_format: the format of the weights: "safetensors" (a file) or "orbax" (a folder).

    Raises:
        CaffejaxError: if layers are not supported (the message names each of them), or if the folder is not empty or
            not writable.
        WeightsError: if the package for the weights is missing.
    """
    if weight_format not in _WRITERS:
        raise CaffejaxError(f'weights must be "safetensors" or "orbax", not {weight_format!r}')
    target = Path(folder)
    check_folder(target)
    program = name_modules(collapse_to_lists(extract_blocks(lower(model))))
    name = make_net_class_name(program, model.net.graph.name)
    files = {
        "model.py": generate_source(program, name, weight_format),
        "README.md": make_readme(program, name, weight_format),
    }
    try:
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=_parent_folder(target)) as temporary_folder:
            staging_folder = Path(temporary_folder) / "complete"
            staging_folder.mkdir()
            for file, text in files.items():
                (staging_folder / file).write_text(text, encoding="ascii")
            _WRITERS[weight_format](staging_folder, program.weights)
            os.replace(staging_folder, target)
    except OSError as error:
        raise CaffejaxError(Problem(f"cannot be written: {error.strerror or error}", str(target))) from error


def _parent_folder(target: Path) -> Path:
    return target.resolve().parent


def check_folder(folder: str | os.PathLike[str]) -> None:
    """Raise `CaffejaxError` if the folder is not empty, or if it does not exist and cannot be created."""
    target = Path(folder)
    if os.path.isdir(target):
        if any(target.iterdir()):
            raise CaffejaxError(
                Problem("is a folder that is not empty; choose another folder or empty it", str(target))
            )
    elif os.path.lexists(target):
        raise CaffejaxError(Problem("is not a folder; choose another path", str(target)))
    elif not os.path.isdir(_parent_folder(target)):
        raise CaffejaxError(
            Problem(f"cannot be created: folder '{_parent_folder(target)}' does not exist", str(target))
        )


def _write_safetensors(folder: Path, arrays: Mapping[str, np.ndarray]) -> None:
    write_safetensors(folder / "model.safetensors", arrays)


def _write_orbax(folder: Path, arrays: Mapping[str, np.ndarray]) -> None:
    import orbax.checkpoint as ocp

    tree: dict[Any, Any] = {}
    for path, array in arrays.items():
        *parents, leaf = (int(part) if part.isdigit() else part for part in path.split("."))
        subtree = tree
        for part in parents:
            subtree = subtree.setdefault(part, {})
        subtree[leaf] = array
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save((folder / "weights").absolute(), tree)


_WRITERS: dict[str, Callable[[Path, Mapping[str, np.ndarray]], None]] = {
    "safetensors": _write_safetensors,
    "orbax": _write_orbax,
}


_RUN_TEMPLATE = """# {name}

The net {title} in flax, written by caffejax: `model.py` contains the class `{name}`, and `{file}` contains its weights.
The source needs {packages}. Arrays have their channels last: (batch, height, width, channels).

```python
import jax.numpy as jnp

from model import load

model = load()
{arguments}
{print_line}
```
"""
_TRAIN_TEMPLATE = """
To train the net, pass it batches with labels. {modes}{advice}

```python
import optax
from flax import nnx


def loss(model, data, labels):
    {loss}


@nnx.jit
def train_step(model, optimizer, data, labels):
    value, gradients = nnx.value_and_grad(loss)(model, data, labels)
    optimizer.update(model, gradients)
    return value


model.train()
optimizer = nnx.Optimizer(model, optax.sgd(0.001, momentum=0.9), wrt=nnx.Param)
labels = jnp.zeros({batch}, int)
for _ in range(3):
    print(train_step(model, optimizer, {first}, labels))
```
"""
_ADVICE_TEMPLATE = """
Probabilities that are 0 in float32 have no gradient. To train from scratch, export the scores before the softmax
instead: `--outputs={scores}`."""
_PACKAGES = {
    "safetensors": ("model.safetensors", "`jax`, `flax` and `safetensors`"),
    "orbax": ("weights", "`jax`, `flax` and `orbax-checkpoint`"),
}
_LOSS_OF_LOGITS = "return optax.softmax_cross_entropy_with_integer_labels(model(data), labels).mean()"
_LOSS_OF_PROBABILITIES = (
    "log_p = jnp.log(model(data) + 1e-20)\n    return -jnp.take_along_axis(log_p, labels[:, None], 1).mean()"
)


def make_readme(program: Program, name: str, weight_format: str) -> str:
    """Return the text of README.md."""
    file, packages = _PACKAGES[weight_format]
    inputs = [program.values[number] for number in program.inputs]
    arguments = [f"input_{k}" for k in range(len(inputs))] if len(inputs) != 1 else ["data"]
    lines = [f"{a} = jnp.ones({tuple(v.stored_shape)})" for a, v in zip(arguments, inputs, strict=True)]
    call = f"model({', '.join(arguments)})"
    print_line = (
        f"print({call}.shape)" if len(program.outputs) == 1 else f"print({{k: v.shape for k, v in {call}.items()}})"
    )
    text = _RUN_TEMPLATE.format(
        name=name,
        title=sanitize_docstring(program.net_name) or "without a name",
        file=file,
        packages=packages,
        arguments="\n".join(lines),
        print_line=print_line,
    )
    if not _is_classifier(program):
        return text
    last_step = program.steps[-1]
    ends_in_softmax = last_step.text.startswith("nnx.softmax(")
    scores = sanitize_docstring(program.values[last_step.reads[0]].blob)
    return text + _TRAIN_TEMPLATE.format(
        loss=_LOSS_OF_PROBABILITIES if ends_in_softmax else _LOSS_OF_LOGITS,
        batch=inputs[0].shape[0],
        first=arguments[0],
        modes=_describe_modes(program),
        advice=_ADVICE_TEMPLATE.format(scores=scores) if ends_in_softmax else "",
    )


def _describe_modes(program: Program) -> str:
    """Return a sentence for the README about the effects of `train()` and `eval()` on the net."""
    steps = [*program.steps, *(step for block in program.blocks for step in block.steps)]
    constructors = {step.module.constructor for step in steps if step.module}
    uses_batch_statistics = any(
        step.module and step.module.constructor == "nnx.BatchNorm" and "use_running_average" not in step.text
        for step in steps
    )
    effects = ["dropout"] if "nnx.Dropout" in constructors else []
    effects += ["the batch statistics of batch norms"] if uses_batch_statistics else []
    return (
        f"`train()` enables {' and '.join(effects)}, and `eval()` disables {'them' if len(effects) > 1 else 'it'}."
        if effects
        else "The net computes the same in both modes."
    )


def _is_classifier(program: Program) -> bool:
    """Return whether the net has one input, and one output that contains class scores (N, C) with C > 1."""
    outputs = [program.values[number].shape for number in program.outputs]
    is_one_to_one = len(program.inputs) == 1 == len(outputs) and bool(program.weights)
    return is_one_to_one and len(outputs[0]) == 2 and outputs[0][1] > 1
