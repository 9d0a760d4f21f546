"""Test scores on many devices: each takes whole batches in turn, and the scores are those of one device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from ..data.loader import Loader
from ..debugging import IndexCheck
from ..net import Net, Params, Variables
from ..parallel import DATA, check_shapes, join_batches, place, replicated, share_of, whole
from .evaluate import Scores, Stopped, check_outputs, mean_scores, output_scores

_EACH, _ALL = PartitionSpec(DATA), PartitionSpec()


def can_spread(net: Net) -> bool:
    """Return whether a net's batches can be tested in any order, compiled, with no look at indices."""
    carries = any(layer.carried for layer in net.graph.layers)
    return not (net.graph.has_host_layers or carries or IndexCheck(net).needed)


class MeshEvaluator:
    """A test net with its own place in the data, as `Evaluator`, on the devices of a mesh.

    Args:
        net: the test net, one that `can_spread`; its reading has the mesh's share.
        mesh: the devices; each row takes a batch.
        loader: where its batches come from.
        ap_version: as for `Evaluator`.

    Raises:
        GraphError: if outputs are to be detections and are not.
    """

    def __init__(self, net: Net, mesh: Mesh, loader: Loader, ap_version: str | None = None) -> None:
        self.net, self.loader = net, loader
        self._mesh, self._share, self._ap_version = mesh, share_of(mesh), ap_version
        check_outputs(net, ap_version)
        self._shapes = {name: net.graph.blobs[name].shape for name in net.input_names}
        scores = output_scores(net)

        def of_one(params: Params, state: Params, batch: Any, key: jax.Array) -> Any:
            found, _ = scores(params, state, {name: x[0] for name, x in batch.items()}, key[0])
            return jax.tree.map(lambda x: x[None], found)

        specs = (_ALL, _ALL, _EACH, _EACH)
        run = jax.shard_map(of_one, mesh=mesh, in_specs=specs, out_specs=_EACH, axis_names={DATA}, check_vma=False)
        self._forward = net.jit(run)

    def __call__(
        self,
        variables: Variables,
        batches: int,
        key: jax.Array,
        each: Callable[[int, Scores], object] | None = None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> Scores:
        """Average over `batches` forward passes; all processes must call it together. `each` as for `Evaluator`.

        So is `stopping`, which must say the same in all processes.

        Raises:
            DataError: if a batch cannot be read, or is of another shape than the net's.
            Stopped: if it is stopped.
        """
        params, state = self._everywhere(variables)
        results: list[Any] = []
        for result in self._rounds(params, state, batches, key):
            if stopping():
                raise Stopped
            if each is not None:
                each(len(results), Scores(float(result[0]), result[1]))
            results.append(result)
        return mean_scores(results, self.net.graph, self._ap_version)

    def get_state(self) -> dict[str, Any]:
        """Return the place in the data, by layer."""
        return self.loader.get_state()

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go to a place that `get_state` gave; raises `DataError` if it is none."""
        self.loader.set_state(state)

    def _rounds(self, params: Params, state: Params, batches: int, key: jax.Array) -> Iterator[Any]:
        """Yield the loss and outputs of each batch, in order."""
        n, done = self._share.of, 0
        spare: dict[str, np.ndarray] | None = None
        while done < batches:
            count = min(n, batches - done)
            # the device that takes a batch is settled by its number in the whole of the data
            rows = [(self.loader.number + i) % n for i in range(count)]
            own = self.loader.take(count)
            for batch in own:
                check_shapes(batch, self._shapes)
            by_row = dict(zip((row for row in rows if self._share.owns(row)), own, strict=True))
            spare = own[0] if own else spare or self._zeros()  # for devices that no batch is left for
            here = range(self._share.first, self._share.first + self._share.count)
            placed = join_batches(self._mesh, [by_row.get(row, spare) for row in here], 0)
            keys = [jax.random.fold_in(key, done + rows.index(row)) if row in rows else key for row in range(n)]
            found = whole(self._forward(params, state, placed, self._keys(keys)))
            loss, outputs = jax.tree.map(np.asarray, found)
            for row in rows:
                yield loss[row], {name: blob[row] for name, blob in outputs.items()}
            done += count

    def _keys(self, keys: list[jax.Array]) -> jax.Array:
        """Place a key for each row of the mesh; every process has them all."""
        data = np.stack([np.asarray(jax.random.key_data(key)) for key in keys])
        sharding = jax.sharding.NamedSharding(self._mesh, _EACH)
        return jax.random.wrap_key_data(place(data, sharding))

    def _zeros(self) -> dict[str, np.ndarray]:
        blobs = self.net.graph.blobs
        return {name: np.zeros(blobs[name].shape, blobs[name].dtype) for name in self.net.input_names}

    def _everywhere(self, variables: Variables) -> Variables:
        """Place what only the test net has on all devices; what is trained lies there."""

        def placed(array: Any) -> jax.Array:
            lies_there = isinstance(array, jax.Array) and len(array.sharding.device_set) == self._mesh.size
            found: jax.Array = array if lies_there else place(np.asarray(array), replicated(self._mesh))
            return found

        return jax.tree.map(placed, variables)
