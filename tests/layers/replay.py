"""What the tests of layers share: recorded cases as nets of ours, and small nets round one layer."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from caffejax.net import Net

GOLDEN = Path(__file__).parents[1] / "golden" / "layers"
MANIFEST = json.loads((GOLDEN / "manifest.json").read_text())


def case_id(case: dict[str, Any]) -> str:
    return f"{case['type']}-{case['case']}"


class Replay:
    """A recorded case in a net of ours: the layer under test as a function of its blobs and bottoms."""

    def __init__(
        self, case: dict[str, Any], backward: Any = "autodiff", kernels: Any = "fast", precision: Any = "float32"
    ) -> None:
        path = GOLDEN / case["type"] / case["case"]
        self.recorded = dict(np.load(path.with_suffix(".npz")))
        self.net = Net(
            path.with_suffix(".prototxt"), case["phase"], backward=backward, kernels=kernels, precision=precision
        )
        self.layer = self.net.graph.layer("layer")
        params, self.state = self.net.init(jax.random.key(0))
        # a Parameter layer is named like its top, whose value is recorded as a bottom
        self.params = {name: tuple(self.recorded.get(f"bottom/{name}", b) for b in params[name]) for name in params}
        blobs = [(value, p.spec.learnable) for value, p in zip(self.group("param"), self.layer.params, strict=True)]
        self.params["layer"] = tuple(value if learnable else None for value, learnable in blobs)
        carried = self.state.get("layer", ())[len(blobs) :]
        self.state["layer"] = (*(None if learnable else value for value, learnable in blobs), *carried)
        self.inputs = {name: self.recorded[f"bottom/{name}"] for name in self.net.fed}

    def group(self, prefix: str) -> list[np.ndarray]:
        n = sum(key.startswith(f"{prefix}/") for key in self.recorded)
        return [self.recorded[f"{prefix}/{i}"] for i in range(n)]

    def tops(self, params: Any, inputs: Any) -> tuple[tuple[jax.Array, ...], Any]:
        """The tops, and the new state."""
        state = self.state
        for _ in range(int(self.recorded.get("forwards", 1))):
            values, state = self.net.apply(params, state, inputs, key=jax.random.key(1), blobs=self.layer.tops)
        return tuple(values[top] for top in self.layer.tops), state

    def run(self, backward: bool) -> tuple[Any, ...]:
        """Tops, new state, and diffs of params and inputs for the recorded top diffs."""

        def both(params: Any, inputs: Any) -> tuple[Any, ...]:
            if not backward:
                return *self.tops(params, inputs), None, None
            tops, vjp, state = jax.vjp(self.tops, params, inputs, has_aux=True)
            recorded = [self.recorded.get(f"top_diff/{name}") for name in self.layer.tops]
            diffs = [
                jnp.zeros_like(t) if d is None else jnp.asarray(d, t.dtype) for t, d in zip(tops, recorded, strict=True)
            ]
            return tops, state, *vjp(tuple(diffs))

        return tuple(self.net.jit(both)(self.params, self.inputs))


def net(kind: str, text: str, shapes: list[tuple[int, ...]], tops: int = 1) -> str:
    """A net of Input layers b0, b1, ... and one layer named "layer" with tops t0, t1, ..."""
    inputs = [
        f'layer {{ name: "b{i}" type: "Input" top: "b{i}" input_param {{ shape {{ '
        f"{' '.join(f'dim: {n}' for n in shape)} }} }} }}"
        for i, shape in enumerate(shapes)
    ]
    bottoms = " ".join(f'bottom: "b{i}"' for i in range(len(shapes)))
    named = " ".join(f'top: "t{i}"' for i in range(tops))
    return "\n".join([*inputs, f'layer {{ name: "layer" type: "{kind}" {bottoms} {named} {text} }}'])
