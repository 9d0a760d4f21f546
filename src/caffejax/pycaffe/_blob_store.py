"""The arrays of a pycaffe net: data and diffs of its blobs, parameters and state."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import jax

from ..base.variables import Params, Variables
from ..core.graph import UNNAMED_TOP, Graph, Layer, Slot
from ..core.layers.row_padding import num_valid_rows, strip_padding
from ._blob_lists import BlobLists
from ._synced_memory import Memory, Shape, SyncedBlob


class Memories:
    """The arrays of a net: data and diffs of its blobs, parameters and state.

    Args:
        graph: the net's graph.
        variables: initial parameters and state.
        device: the device on which passes run.

    Attributes:
        device: the device on which passes run; `move` changes it.
        blobs: the blobs by name.
        slots: the blobs of parameters and state, by `Slot` (the name of the layer that owns a blob, and an index), in
            the shapes of the graph.
        lists: the lists of layers' blobs, which scripts may change; see `bind_lists`.
    """

    def __init__(self, graph: Graph, variables: Variables, device: jax.Device) -> None:
        self.device = device
        self._graph = graph
        self._roots = graph.split_roots
        self._params, self._state = graph.map_variables(lambda param: param.slot)
        self.blobs: dict[str, SyncedBlob] = {}
        for name, blob in graph.blobs.items():
            root = self.blobs.get(self._roots.get(name, ""))
            self.blobs[name] = SyncedBlob(blob.shape, data=root.data_memory if root else None)
        self._padded_tops: dict[str, tuple[Shape, int, jax.Array]] = {}
        self._set_loss_weights(graph.loss_weights)
        self.slots = {
            slot: SyncedBlob(array.shape, data=Memory(jax.device_put(array, device)))
            for slot, array in _pair_slots((self._params, self._state), variables)
        }
        self._share_params_with_tops()
        computed_names = [name for name in self.blobs if self._roots.get(name, name) not in graph.param_tops]
        self.lists = BlobLists(graph, self.slots, [self.blobs[name] for name in computed_names])

    # -- params and state

    def bind_lists(self) -> None:
        """Use the blobs that are in the lists of layers' blobs now.

        Raises:
            GraphError: if the blobs do not fit the layers; see `BlobLists.bind`.
        """
        self.lists.bind()
        self._share_params_with_tops()

    @property
    def variables(self) -> Variables:
        """The net's parameters and state as JAX arrays on the net's device."""
        self.bind_lists()
        return Variables(self.select_data(self._params), self.select_data(self._state))

    @variables.setter
    def variables(self, new: Variables) -> None:
        self.bind_lists()
        for slot, array in _pair_slots((self._params, self._state), new):
            if self.slots[slot].get_data(self.device) is not array:
                self.slots[slot].data_memory.store(array)

    @property
    def params(self) -> Params:
        """The net's parameters as JAX arrays: `{layer: {name: array}}`."""
        self.bind_lists()
        return self.select_data(self._params)

    @params.setter
    def params(self, new: Params) -> None:
        self.bind_lists()
        for slot, array in _pair_slots((self._params,), (new,)):
            self.slots[slot].data_memory.store(array)

    @property
    def param_diffs(self) -> Params:
        """The diffs of the parameters as JAX arrays: `{layer: {name: array}}`."""
        self.bind_lists()
        return {
            layer: {i: self.slots[slot].get_diff(self.device) for i, slot in slots.items()}
            for layer, slots in self._params.items()
        }

    @param_diffs.setter
    def param_diffs(self, new: Params) -> None:
        self.bind_lists()
        for slot, array in _pair_slots((self._params,), (new,)):
            self.slots[slot].diff_memory.store(array)

    def clear_param_diffs(self, layer: Layer | None = None) -> None:
        """Set the diffs of the parameters of `layer`, or of all layers, to zero."""
        self.bind_lists()
        for slot in self.slots if layer is None else (param.owner for param in layer.params):
            self.slots[slot].diff_memory.clear()

    def _share_params_with_tops(self) -> None:
        """Make tops that are params, and the tops of Splits that copy them, use the memory of the params."""
        param_tops = self._graph.param_tops
        for name, blob in self.blobs.items() if param_tops else ():
            if (slot := param_tops.get(self._roots.get(name, name))) is not None:
                blob.data_memory = self.slots[slot].data_memory

    def rewrite_params(self, layer: Layer) -> None:
        """Change the layer's parameters as Caffe's forward pass changes them; see `ParamSpec.rewrite`."""
        for param in layer.params:
            if param.spec.rewrite:
                blob = self.slots[param.owner]
                blob.data_memory.store(param.spec.rewrite(blob.get_data(self.device)))

    def select_data(self, tree: Mapping[str, Mapping[str, Slot]]) -> Params:
        """Return a copy of a tree in which each slot is replaced by its data."""
        return {
            layer: {i: self.slots[slot].get_data(self.device) for i, slot in slots.items()}
            for layer, slots in tree.items()
        }

    # -- blobs

    def get_values(self, names: Iterable[str]) -> dict[str, jax.Array]:
        """Return the data of the blobs `names` as JAX arrays, by name."""
        return {name: self.blobs[name].get_data(self.device) for name in names}

    def store(self, name: str, array: jax.Array) -> None:
        """Store new data for the blob `name`, and reshape the blob to the array's shape."""
        self.set_shape(name, array.shape)
        self.blobs[name].data_memory.store(array)

    def store_rows(self, name: str, padded: jax.Array) -> None:
        """Store a top with padded rows. Its blob gets only the valid rows, as in Caffe, or one row if no row is valid.

        `get_inputs` returns the top with its padded rows, because passes are compiled for their number.
        """
        self.store(name, strip_padding(padded, max(1, num_valid_rows(padded))))
        blob = self.blobs[name]
        self._padded_tops[name] = blob.shape, blob.data_memory.version, padded

    def get_inputs(self, names: Iterable[str]) -> dict[str, jax.Array]:
        """Return the data of the blobs `names` as JAX arrays, by name.

        A top that `store_rows` stored is returned with its padding, unless it has been changed since.
        """
        values = {}
        for name in names:
            shape, version, padded = self._padded_tops.get(name, (None, None, None))
            blob = self.blobs[name]
            is_unchanged = padded is not None and (blob.shape, blob.data_memory.current_version()) == (shape, version)
            values[name] = padded if is_unchanged and padded is not None else blob.get_data(self.device)
        return values

    def set_shape(self, name: str, shape: Shape) -> None:
        """Set the shape of the blob `name`. If it is the bottom of a Split, set the shape of the Split's tops, too."""
        if self.blobs[name].shape != shape:
            for blob_name in (name, *(top for top, root in self._roots.items() if root == name)):
                self.blobs[blob_name].reshape(*shape)

    def reshape(self, graph: Graph, layers: range) -> None:
        """Reshape the tops and the recurrent state of `layers` to their shapes in `graph`, which has new input shapes.

        State with a new shape becomes zero.
        """
        self._graph = graph
        reshaped_layers = graph.layers[layers.start : layers.stop]
        tops = dict.fromkeys(top for layer in reshaped_layers for top in layer.tops)
        changed_names = [name for name in tops if self.blobs[name].shape != graph.blobs[name].shape]
        for name in changed_names:
            self.blobs[name].reshape(*graph.blobs[name].shape)
        for param in (param for layer in reshaped_layers for param in layer.recurrent_state):
            if (state := self.slots[param.slot]).shape != param.spec.shape:
                state.reshape(*param.spec.shape)
                state.data_memory.clear()
        self._set_loss_weights(changed_names)

    def move(self, device: jax.Device) -> None:
        """Move all data and diffs to `device`."""
        self.device = device
        for blob in (*self.blobs.values(), *self.slots.values()):
            blob.data_memory.move(device)
            blob.diff_memory.move(device)

    def _set_loss_weights(self, names: Collection[str]) -> None:
        """Fill the diffs of the losses among the blobs `names` with the loss weights, as Caffe's layer setup does."""
        for name, weight in self._graph.loss_weights.items():
            if name != UNNAMED_TOP and name in names:
                self.blobs[name].diff[...] = weight


def _pair_slots(
    trees: Iterable[Mapping[str, Any]], values: Iterable[Mapping[str, Any]]
) -> Iterator[tuple[Slot, jax.Array]]:
    for tree, arrays in zip(trees, values, strict=True):
        for layer, slots in tree.items():
            yield from ((slot, arrays[layer][i]) for i, slot in slots.items())
