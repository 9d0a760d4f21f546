"""A Caffe net as a flax module.

    net = caffejax.Net("train_val.prototxt", phase="TRAIN")
    model = CaffeModule(net, rngs=nnx.Rngs(0))  # or CaffeModule(net, load_weights(...), rngs=...)
    optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer, batch):
        (loss, blobs), grads = nnx.value_and_grad(lambda m: m.loss(batch), has_aux=True)(model)
        optimizer.update(model, grads)
        return loss

    net.apply(*variables_of(model), batch)

`variables_of` converts back to plain variables, for nets, weight files and solvers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen, nnx

from ..base.variables import Blobs, Variables, as_params
from ..core.program.net import Net


class RecurrentState(nnx.Variable[Any]):
    """The state that a recurrent layer carries from one forward pass to the next."""


class CaffeModule(nnx.Module):
    """A flax module that contains a net and its variables.

    A forward pass updates running statistics and the state of recurrent layers. In train mode, random layers such as
    dropout use a new key for each pass. In eval mode, the key stays the same. `train()` and `eval()` change the
    behaviour of layers such as dropout. They do not change the set of layers, which depends on the net's phase. The
    initial mode is train mode in phase TRAIN, and eval mode in phase TEST.

    Args:
        net: the net.
        variables: its parameters and state, from `Net.init`, `load_weights` or a solver, or None to initialise them
            with `rngs`. Those of layers that the net does not have, after `Net.for_inference`, are left out, so that
            no optimizer decays or stores them.
        rngs: the random streams. The stream `params` initialises variables, and the stream `dropout` is for random
            layers. If either stream is missing, the stream `default` replaces it.

    Attributes:
        net: the net.
        weights: `{layer: {name: nnx.Param}}`, in Caffe's shapes. A shared blob is stored only for the layer
            that owns it.
        state: `{layer: {name: variable}}`, where running statistics are nnx.BatchStat and recurrent state is
            RecurrentState.
        deterministic: whether the module is in eval mode.

    Raises:
        ValueError: if both variables and rngs are None.
    """

    def __init__(self, net: Net, variables: Variables | None = None, *, rngs: nnx.Rngs | None = None) -> None:
        if variables is None:
            if rngs is None:
                raise ValueError("CaffeModule needs variables, or rngs to initialise them")
            variables = net.init(rngs.params())
        layers = {param.owner.layer for layer in net.graph.layers for param in layer.all_params}
        variables = Variables(
            *({layer: blobs for layer, blobs in as_params(tree).items() if layer in layers} for tree in variables)
        )
        self.net = net
        self.weights = nnx.data(jax.tree.map(lambda blob: nnx.Param(jnp.asarray(blob)), variables.params))
        self.state = nnx.data({key: _make_state_variables(net, key, blobs) for key, blobs in variables.state.items()})
        has_random_stream = rngs is not None and ("dropout" in rngs or "default" in rngs)
        self.stream = nnx.data(rngs.dropout.fork() if rngs is not None and has_random_stream else None)
        self.deterministic = net.graph.phase != "TRAIN"

    def __call__(self, inputs: Mapping[str, jax.Array], *, blobs: Iterable[str] | None = None) -> Blobs:
        """Run one forward pass.

        Args:
            inputs: an array for each input of the net. The first axis may have a different size than in the prototxt.
            blobs: the names of the blobs to return, or None for the net's outputs.

        Returns:
            The blobs by name.

        Raises:
            LayerError: in train mode, if a layer is random and no rngs were passed.
        """
        return self._run(inputs, blobs, require_loss=False)[1]

    def loss(self, inputs: Mapping[str, jax.Array], *, blobs: Iterable[str] | None = None) -> tuple[jax.Array, Blobs]:
        """Run one forward pass, and return the weighted sum of the losses as a scalar, and the blobs by name.

        The arguments and errors are the same as in `__call__`. A net without a loss is a `GraphError`.
        """
        return self._run(inputs, blobs, require_loss=True)

    def _run(
        self, inputs: Mapping[str, jax.Array], blobs: Iterable[str] | None, *, require_loss: bool
    ) -> tuple[jax.Array, Blobs]:
        key = None
        if self.stream is not None:
            key = self.stream.key[...] if self.deterministic else self.stream()
        net = self.net.with_phase("TEST" if self.deterministic else "TRAIN")
        total, outputs = net.loss(*variables_of(self), inputs, key, blobs=blobs, required=require_loss)
        for layer, values in outputs.state.items():
            for name, value in values.items():
                if self.state[layer][name][...] is not value:
                    self.state[layer][name][...] = value
        return total, outputs.blobs

    def set_view(self, deterministic: bool | None = None) -> None:
        """Set eval mode if `deterministic` is true, and train mode if it is false. `nnx.view` calls this method."""
        if deterministic is not None:
            self.deterministic = deterministic


def variables_of(module: CaffeModule) -> Variables:
    """Return the module's parameters and state as plain JAX arrays, in the structure of `Net.init`'s result."""
    params, state = jax.tree.map(_read_array, (module.weights, module.state), is_leaf=_is_variable)
    return Variables(params, state)


def to_linen(net: Net, variables: Variables | None = None) -> linen.Module:
    """Return a linen module that contains a net. It uses flax's bridge from nnx to linen.

    `init({"params": key, "dropout": key}, inputs)` returns `variables`, or initial values if they are None. The
    collections are `params`, `batch_stats` and `RecurrentState`. `apply` also returns the updated collections that
    `mutable` names and, with `nnx_method="loss"`, the loss. In phase TRAIN, pass `rngs={"dropout": key}` to `apply`,
    because otherwise the bridge uses a constant key.
    """

    def module(*, rngs: nnx.Rngs) -> CaffeModule:
        return CaffeModule(net, variables, rngs=rngs)

    return nnx.bridge.ToLinen(module)


def _make_state_variables(net: Net, key: str, blobs: Mapping[str, Any]) -> dict[str, nnx.Variable[Any]]:
    carried = {param.slot.name for param in net.graph.layer(key).recurrent_state}
    return {
        name: (RecurrentState if name in carried else nnx.BatchStat)(jnp.asarray(blob)) for name, blob in blobs.items()
    }


def _is_variable(x: Any) -> bool:
    return isinstance(x, nnx.Variable)


def _read_array(variable: Any) -> jax.Array:
    array: jax.Array = variable[...]
    return array
