"""The page that goes with written source: how to run and train it."""

from __future__ import annotations

from .names import comment
from .program import Program

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
To train it, give it a batch with labels. `train()` has dropout drop and batch norms take the statistics of the batch,
`eval()` ends that.

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
_PACKAGES = {
    "safetensors": ("model.safetensors", "`jax`, `flax` and `safetensors`"),
    "orbax": ("weights", "`jax`, `flax` and `orbax-checkpoint`"),
}
_LOGITS = "return optax.softmax_cross_entropy_with_integer_labels(model(data), labels).mean()"
_PROBABILITIES = (
    "log_p = jnp.log(model(data) + 1e-20)\n    return -jnp.take_along_axis(log_p, labels[:, None], 1).mean()"
)


def readme(program: Program, name: str, weights: str) -> str:
    """Return the page."""
    file, packages = _PACKAGES[weights]
    inputs = [program.values[number] for number in program.inputs]
    arguments = [f"input_{k}" for k in range(len(inputs))] if len(inputs) != 1 else ["data"]
    made = [f"{a} = jnp.ones({tuple(v.stored)})" for a, v in zip(arguments, inputs, strict=True)]
    call = f"model({', '.join(arguments)})"
    shown = f"print({call}.shape)" if len(program.outputs) == 1 else f"print({{k: v.shape for k, v in {call}.items()}})"
    text = _RUN.format(
        name=name,
        title=comment(program.title) or "without a name",
        file=file,
        packages=packages,
        arguments="\n".join(made),
        shown=shown,
    )
    if not _classifies(program):
        return text
    last = program.steps[-1]
    loss = _PROBABILITIES if last.text.startswith("nnx.softmax(") else _LOGITS
    return text + _TRAIN.format(loss=loss, batch=inputs[0].shape[0], first=arguments[0])


def _classifies(program: Program) -> bool:
    """Return whether there is one input, and one output of numbers for classes."""
    outputs = [program.values[number].shape for number in program.outputs]
    one = len(program.inputs) == 1 == len(outputs) and bool(program.weights)
    return one and len(outputs[0]) == 2 and outputs[0][1] > 1
