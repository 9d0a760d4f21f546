"""Tests of a solver's test nets, which run in the blobs of these nets, as Caffe's do."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..base.variables import Variables
from ..core.graph import Param
from ..core.solver.evaluate import Evaluator
from ..core.solver.joint_steps import runs_alone
from ._layer_range import find_padded_tops
from ._net import Net
from ._synced_memory import SyncedBlob


class NetEvaluator(Evaluator):
    """Tests a net by forward passes in its blobs, where scripts then find the last batch and its outputs.

    A test starts with the train net's parameters. Caffe changes the running statistics that the two nets share; this
    does not. Where nobody can look at the blobs between the passes, only the last pass fills them.

    Args:
        evaluator: the evaluator that is replaced, with the loader of the test net.
        net: the test net.
        train_net: the train net.
    """

    def __init__(self, evaluator: Evaluator, net: Net, train_net: Net) -> None:
        settings = evaluator.loader, evaluator.eval_type, evaluator.ap_version
        super().__init__(net._executor.net, evaluator.mesh, *settings)
        self._test_net, self._train_net = net, train_net
        self._graph, self._runs_alone = net._executor.graph, runs_alone(net._executor.net)

    def get_state(self) -> dict[str, Any]:
        """Return the position in the data and the recurrent state; see `Evaluator`."""
        self._last_state = self._test_net._executor.memories.variables.state
        return super().get_state()

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state that `get_state` returned; see `Evaluator`."""
        super().set_state(state)
        slots = self._test_net._executor.memories.slots
        for param in (param for layer in self.net.graph.layers for param in layer.recurrent_state):
            if param.slot.layer in self._last_state:
                slots[param.slot].data_memory.store(self._last_state[param.slot.layer][param.slot.name])
            else:
                slots[param.slot].data_memory.clear()

    def _run_passes(self, variables: Variables, num_batches: int, key: jax.Array) -> Generator[Any, None, None]:
        """Yield `(loss, outputs)` of each batch; the variables are those of the nets' blobs."""
        executor = self._test_net._executor
        self._test_net.share_with(self._train_net)
        padded_tops = find_padded_tops(executor.graph.layers)
        blobs_before = [(blob, blob.get_data(executor.memories.device)) for blob in self._find_blobs_to_keep()]
        try:
            num_unseen = 0 if self._is_visible() else num_batches - 1
            yield from super()._run_passes(executor.memories.variables, num_unseen, key)
            for i in range(num_unseen, num_batches):
                losses = executor.forward(0, len(executor.graph.layers) - 1, (key, i), is_test=True)
                outputs = executor.memories.get_values(self.net.outputs)
                for name in padded_tops.intersection(outputs):
                    outputs[name] = _pad_rows(outputs[name], executor.graph.blobs[name].shape)
                yield sum(losses, start=jnp.zeros(())), outputs
        finally:
            for blob, array in blobs_before:
                if blob.get_data(executor.memories.device) is not array:
                    blob.data_memory.store(array)

    def _is_visible(self) -> bool:
        """Return whether each pass must run in the blobs: users look at them, or they hold its changes."""
        executor = self._test_net._executor
        is_changed = executor.graph is not self._graph or executor.memories.device != self.mesh.devices.item()
        has_state = self._find_blobs_to_keep() or any(layer.recurrent_state for layer in self._graph.layers)
        return bool(not self._runs_alone or executor.has_callbacks or is_changed or has_state)

    def _find_blobs_to_keep(self) -> list[SyncedBlob]:
        """Return the running statistics, and the params that forward passes of forks rewrite."""

        def is_changed_by_passes(param: Param) -> bool:
            return not param.spec.learnable or param.spec.rewrite is not None

        slots = {p.owner for p in self.net.graph.params if is_changed_by_passes(p)}
        return [self._test_net._executor.memories.slots[slot] for slot in slots]


def _pad_rows(array: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Return a top with rows of -1 up to its largest shape, so that all batches have one shape."""
    sizes = [(0, n - m) for n, m in zip(shape, array.shape, strict=True)]
    return jnp.asarray(np.pad(np.asarray(array), sizes, constant_values=-1))
