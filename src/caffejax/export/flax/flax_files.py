"""Writing of a net as a folder with flax source, weights and a README."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ...checkpoints.array_files import write_safetensors
from ...errors import CaffejaxError, Problem
from ..inference_model import Subject
from .codegen import name_modules, net_class, source
from .collapse_repeats import collapse_to_lists, extract_blocks
from .ir import Program, comment
from .lower import translate

Weights = Literal["safetensors", "orbax"]


def write_flax(subject: Subject, folder: str | os.PathLike[str], *, weights: Weights = "safetensors") -> None:
    """Write a net as flax source that runs and trains without caffejax.

    The folder contains `model.py` with the net's class and the function `load`, the weights, and `README.md` with
    instructions.

    Args:
        subject: the net with its weights.
        folder: the folder. It is created if it does not exist; an existing folder must be empty.
        weights: format of the weights: "safetensors" (a file) or "orbax" (a folder).

    Raises:
        CaffejaxError: naming every layer that cannot be written; also if the folder is not empty or not writable.
        WeightsError: if the package for the weights is missing.
    """
    if weights not in _WRITERS:
        raise CaffejaxError(f'weights must be "safetensors" or "orbax", not {weights!r}')
    target = Path(folder)
    check_folder(target)
    program = name_modules(collapse_to_lists(extract_blocks(translate(subject))))
    name = net_class(program, subject.net.graph.name)
    files = {"model.py": source(program, name, weights), "README.md": readme(program, name, weights)}
    try:
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=_parent(target)) as temporary:
            complete = Path(temporary) / "whole"
            complete.mkdir()
            for file, text in files.items():
                (complete / file).write_text(text, encoding="ascii")
            _WRITERS[weights](complete, program.weights)
            os.replace(complete, target)
    except OSError as error:
        raise CaffejaxError(Problem(f"cannot be written: {error.strerror or error}", str(target))) from error


def _parent(target: Path) -> Path:
    return target.resolve().parent


def check_folder(folder: str | os.PathLike[str]) -> None:
    """Raise `CaffejaxError` unless the folder is empty, or does not exist and can be created."""
    target = Path(folder)
    if os.path.isdir(target):
        if any(target.iterdir()):
            raise CaffejaxError(
                Problem("is a folder that is not empty; choose another folder or empty it", str(target))
            )
    elif os.path.lexists(target):
        raise CaffejaxError(Problem("is not a folder; choose another path", str(target)))
    elif not os.path.isdir(_parent(target)):
        raise CaffejaxError(Problem(f"cannot be created: folder '{_parent(target)}' does not exist", str(target)))


def _write_file(folder: Path, arrays: Mapping[str, np.ndarray]) -> None:
    write_safetensors(folder / "model.safetensors", arrays)


def _write_orbax(folder: Path, arrays: Mapping[str, np.ndarray]) -> None:
    import orbax.checkpoint as ocp

    tree: dict[Any, Any] = {}
    for path, array in arrays.items():
        *above, last = (int(word) if word.isdigit() else word for word in path.split("."))
        inside = tree
        for word in above:
            inside = inside.setdefault(word, {})
        inside[last] = array
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save((folder / "weights").absolute(), tree)


_WRITERS: dict[str, Callable[[Path, Mapping[str, np.ndarray]], None]] = {
    "safetensors": _write_file,
    "orbax": _write_orbax,
}


_RUN = """# {name}

The net {title} in flax, written by caffejax: `model.py` has the class `{name}`, `{file}` its weights.
It needs {packages}. Arrays have their channels last: (batch, height, width, channels).

```python
import jax.numpy as jnp

from model import load

model = load()
{arguments}
{shown}
```
"""
_TRAIN = """
To train it, give it a batch with labels. {modes}{advice}

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
_ADVICE = """
Probabilities that are 0 in float32 have no gradient. To train from the start, export the scores before the softmax
instead: `--outputs={scores}`."""
_PACKAGES = {
    "safetensors": ("model.safetensors", "`jax`, `flax` and `safetensors`"),
    "orbax": ("weights", "`jax`, `flax` and `orbax-checkpoint`"),
}
_LOGITS = "return optax.softmax_cross_entropy_with_integer_labels(model(data), labels).mean()"
_PROBABILITIES = (
    "log_p = jnp.log(model(data) + 1e-20)\n    return -jnp.take_along_axis(log_p, labels[:, None], 1).mean()"
)


def readme(program: Program, name: str, weights: str) -> str:
    """Return the text of README.md."""
    file, packages = _PACKAGES[weights]
    inputs = [program.values[number] for number in program.inputs]
    arguments = [f"input_{k}" for k in range(len(inputs))] if len(inputs) != 1 else ["data"]
    lines = [f"{a} = jnp.ones({tuple(v.stored)})" for a, v in zip(arguments, inputs, strict=True)]
    call = f"model({', '.join(arguments)})"
    shown = f"print({call}.shape)" if len(program.outputs) == 1 else f"print({{k: v.shape for k, v in {call}.items()}})"
    text = _RUN.format(
        name=name,
        title=comment(program.title) or "without a name",
        file=file,
        packages=packages,
        arguments="\n".join(lines),
        shown=shown,
    )
    if not _is_classifier(program):
        return text
    last = program.steps[-1]
    ends_in_softmax = last.text.startswith("nnx.softmax(")
    scores = comment(program.values[last.reads[0]].blob)
    return text + _TRAIN.format(
        loss=_PROBABILITIES if ends_in_softmax else _LOGITS,
        batch=inputs[0].shape[0],
        first=arguments[0],
        modes=_modes_sentence(program),
        advice=_ADVICE.format(scores=scores) if ends_in_softmax else "",
    )


def _modes_sentence(program: Program) -> str:
    """Return a sentence for the README about the effects of `train()` and `eval()` on this net."""
    steps = [*program.steps, *(step for block in program.blocks for step in block.steps)]
    makers = {step.part.maker for step in steps if step.part}
    adapts = any(step.part and step.part.maker == "nnx.BatchNorm" and "use_running_average" not in step.text
                 for step in steps)  # fmt: skip
    acts = ["dropout drop"] if "nnx.Dropout" in makers else []
    acts += ["batch norms take the statistics of the batch"] if adapts else []
    return f"`train()` has {' and '.join(acts)}, `eval()` ends that." if acts else "It computes the same in both modes."


def _is_classifier(program: Program) -> bool:
    """Return whether the net has one input and one output, of class scores (N, C) with C > 1."""
    outputs = [program.values[number].shape for number in program.outputs]
    one = len(program.inputs) == 1 == len(outputs) and bool(program.weights)
    return one and len(outputs[0]) == 2 and outputs[0][1] > 1
