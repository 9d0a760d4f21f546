"""The net as Caffe's Python interface shows it."""

from __future__ import annotations

import os
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from .. import net as pure
from ..checkpoints.loading import load_weights, save_weights
from ..data.loader import Loader
from ..data.memory import ArraySource
from ..errors import GraphError, Problem, WeightsError, did_you_mean
from ..graph import Layer as GraphLayer
from ..layers.context import Phase, name_key
from ..schema.caffe_pb2 import TRAIN
from . import _modes
from ._arrays import check_arrays, takes_arrays
from ._running import Callback, Running
from ._synced import SyncedBlob

AnyPath = str | os.PathLike[str]
Arrays = dict[str, np.ndarray]


class NetLayer:
    """A layer of a net.

    Attributes:
        type: Caffe's name of the type.
        blobs: its params, running statistics among them.
    """

    def __init__(self, type: str, blobs: list[SyncedBlob]) -> None:
        self.type, self.blobs = type, blobs


class Net:
    """A Caffe net with its numbers.

    Call it as Caffe's is called: `Net(file, phase)`, with `level`, `stages` and `weights` if wanted, or in the old
    form `Net(file, weights, phase)`.

    Args:
        network_file: a prototxt's path (or its text).
        phase: TRAIN or TEST.
        level, stages: further conditions of the layers' include and exclude rules.
        weights: a .caffemodel or .caffemodel.h5 to start from.

    Attributes:
        name: its name; scripts may give it another.
        blobs: every blob by name, in the order of their making.
        params: the blobs of each layer that has some, by the layer's name.
        layers: all layers, in order; `layer_dict` has them by name. A Python layer is the user's own object.

    Raises:
        CaffejaxError: for files that cannot be read or nets that cannot be built; the message says what and where.
    """

    def __init__(
        self,
        network_file: AnyPath,
        phase: int | AnyPath,
        level: int = 0,
        stages: Sequence[str] | None = None,
        weights: AnyPath | None = None,
    ) -> None:
        if not isinstance(phase, int):
            weights, phase, level = phase, level, 0
        if weights is not None and not Path(weights).is_file():
            raise WeightsError(Problem("no such file; check the path and the working directory", str(weights)))
        name: Phase = "TRAIN" if phase == TRAIN else "TEST"
        net = pure.Net(network_file, name, level=level, stages=tuple(stages or ()), seed=_modes.next_seed())
        key, number = _modes.next_key()
        loader = Loader(net.graph, by_hand=dict)
        self._show(Running(net, net.init(name_key(key, f"net {number}")), loader))
        weakref.finalize(self, loader.close)
        if weights is not None:
            self.copy_from(weights)

    @classmethod
    def _of(cls, running: Running) -> Net:
        """The interface of a net that runs already."""
        net = cls.__new__(cls)
        net._show(running)
        return net

    def _show(self, running: Running) -> None:
        self._running = running
        graph = running.graph
        self.name = graph.name
        self.blobs: OrderedDict[str, SyncedBlob] = OrderedDict(running.blobs)
        self._layer_blobs = [_layer_blobs(running, layer) for layer in graph.layers]
        self.layers = [_shown(layer, blobs) for layer, blobs in zip(graph.layers, self._layer_blobs, strict=True)]
        self._layer_names = [layer.name for layer in graph.layers]
        self.layer_dict = OrderedDict(zip(self._layer_names, self.layers, strict=True))
        self.params = OrderedDict(
            (name, blobs) for name, blobs in zip(self._layer_names, self._layer_blobs, strict=True) if blobs
        )
        self._blob_names, self._blobs = list(self.blobs), list(self.blobs.values())
        self.inputs, self.outputs = list(graph.inputs), list(graph.outputs)
        self._inputs = [self._blob_names.index(n) for n in self.inputs]
        self._outputs = [self._blob_names.index(n) for n in self.outputs]
        self.bottom_names = OrderedDict((layer.name, list(layer.bottoms)) for layer in graph.layers)
        self.top_names = OrderedDict((layer.name, list(layer.tops)) for layer in graph.layers)

    @property
    def blob_loss_weights(self) -> OrderedDict[str, float]:
        """The loss weight of every blob."""
        losses = self._running.graph.losses
        return OrderedDict((name, losses.get(name, 0.0)) for name in self._blob_names)

    @property
    def _blob_loss_weights(self) -> list[float]:
        return list(self.blob_loss_weights.values())

    def _bottom_ids(self, i: int) -> list[int]:
        """The indices of a layer's bottoms among the blobs."""
        return [self._blob_names.index(n) for n in self._running.graph.layers[i].bottoms]

    def _top_ids(self, i: int) -> list[int]:
        """The indices of a layer's tops among the blobs."""
        return [self._blob_names.index(n) for n in self._running.graph.layers[i].tops]

    # -- running

    def forward(
        self, blobs: Iterable[str] | None = None, start: str | None = None, end: str | None = None, **kwargs: Any
    ) -> Arrays:
        """Runs layers on what stands in the blobs; data layers read their next batch.

        Args:
            blobs: blobs to return beside the outputs.
            start, end: names of the first and the last layer to run; without them, the first and last of all.
            kwargs: an array for each of the net's inputs, or none.

        Returns:
            The net's outputs, with `end` that layer's tops: the blobs' own memory, which the next pass overwrites.
        """
        first = self._layer_index(start) if start is not None else 0
        last = self._layer_index(end) if end is not None else len(self.layers) - 1
        if kwargs:
            self._set("data", kwargs, self.inputs, "Input blob arguments do not match net inputs", "Input is")
        self._run(first, last)
        names = self.top_names[end] if end is not None else self.outputs
        return {name: self._blob(name).data for name in dict.fromkeys((*names, *(blobs or ())))}

    def backward(
        self, diffs: Iterable[str] | None = None, start: str | None = None, end: str | None = None, **kwargs: Any
    ) -> Arrays:
        """Runs layers backward: from the diffs of the losses, which are their weights, and what stands in the diffs.

        The diffs of params add up until `clear_param_diffs`.

        Args:
            diffs: blobs whose diffs to return beside those of the inputs.
            start, end: names of the layer to start from and the one to end with, going down.
            kwargs: a diff for each of the net's outputs, or none.

        Returns:
            The diffs of the net's inputs, with `end` those of that layer's bottoms.
        """
        high = self._layer_index(start) if start is not None else len(self.layers) - 1
        low = self._layer_index(end) if end is not None else 0
        if kwargs:
            self._set("diff", kwargs, self.outputs, "Top diff arguments do not match net outputs", "Diff is")
        names = self.bottom_names[end] if end is not None else self.inputs
        wanted = dict.fromkeys((*names, *(diffs or ())))
        self._running.backward(high, low, wanted)
        return {name: self._blob(name).diff for name in wanted}

    def forward_all(self, blobs: Sequence[str] | None = None, **kwargs: Any) -> Arrays:
        """Runs forward over any number of examples, in batches.

        Args:
            blobs: blobs to return beside the outputs.
            kwargs: for each of the net's inputs an array with all examples along its first axis.

        Returns:
            Copies, with as many rows as there were examples; of a loss, which has no rows, a number for each batch.
        """
        found: dict[str, list[Any]] = {name: [] for name in (*self.outputs, *(blobs or ()))}
        for batch in self._batch(kwargs):
            for name, array in self.forward(blobs=blobs, **batch).items():
                found[name].extend(np.atleast_1d(array).copy())
        return self._cut(found, len(next(iter(kwargs.values()))))

    def forward_backward_all(
        self, blobs: Sequence[str] | None = None, diffs: Sequence[str] | None = None, **kwargs: Any
    ) -> tuple[Arrays, Arrays]:
        """Runs forward and backward over any number of examples, in batches.

        Args:
            blobs, diffs: what to return beside the outputs, and beside the inputs' diffs.
            kwargs: arrays for the net's inputs, and diffs for its outputs, with all examples along the first axis.

        Returns:
            Copies of the blobs and of the diffs.
        """
        found: dict[str, list[Any]] = {name: [] for name in (*self.outputs, *(blobs or ()))}
        found_diffs: dict[str, list[Any]] = {name: [] for name in (*self.inputs, *(diffs or ()))}
        ahead = self._batch({name: kwargs[name] for name in self.inputs if name in kwargs})
        back = self._batch({name: kwargs[name] for name in self.outputs if name in kwargs})
        for batch, top_diffs in zip_longest(ahead, back, fillvalue=dict[str, Any]()):
            for name, array in self.forward(blobs=blobs, **batch).items():
                found[name].extend(np.atleast_1d(array).copy())
            for name, array in self.backward(diffs=diffs, **top_diffs).items():
                found_diffs[name].extend(np.atleast_1d(array).copy())
        n = len(next(iter(kwargs.values())))
        return self._cut(found, n), self._cut(found_diffs, n)

    def reshape(self) -> None:
        """Takes the shapes that the input blobs have now for the whole net.

        Raises:
            GraphError: if a layer cannot work with them.
        """
        self._running.reshape()

    def clear_param_diffs(self) -> None:
        """Makes the diffs of all params zero."""
        self._running.clear_param_diffs()

    def before_forward(self, callback: Callback) -> None:
        """Has `callback(index)` called before each layer's forward pass. The net then runs layer by layer."""
        self._running.callbacks["before_forward"].append(callback)

    def after_forward(self, callback: Callback) -> None:
        """Has `callback(index)` called after each layer's forward pass."""
        self._running.callbacks["after_forward"].append(callback)

    def before_backward(self, callback: Callback) -> None:
        """Has `callback(index)` called before each layer's backward pass."""
        self._running.callbacks["before_backward"].append(callback)

    def after_backward(self, callback: Callback) -> None:
        """Has `callback(index)` called after each layer's backward pass."""
        self._running.callbacks["after_backward"].append(callback)

    def set_input_arrays(self, data: np.ndarray, labels: np.ndarray) -> None:
        """Gives the net's MemoryData layer, its first, arrays to read from, again and again.

        Args:
            data: (N, channels, height, width), float32, contiguous; N a multiple of the batch size.
            labels: (N,) or (N, 1, 1, 1), likewise.

        Raises:
            GraphError: if they are not like that, or the first layer is none.
        """
        layer = self._running.graph.layers[0]
        if labels.ndim == 1:
            labels = np.ascontiguousarray(labels[:, None, None, None])
        check_arrays(layer, self._running.graph.blobs[layer.tops[0]].shape if layer.tops else (), data, labels)
        self._running.arrays[layer.key] = ArraySource(data, labels, len(self.blobs[layer.tops[0]].data))

    _set_input_arrays = set_input_arrays

    # -- weights

    def copy_from(self, weights: AnyPath) -> None:
        """Takes the blobs of a .caffemodel or .caffemodel.h5 for the layers of the same names.

        Raises:
            WeightsError: if it cannot be read, or blobs do not fit.
        """
        self._running.variables = load_weights(self._running.graph, self._running.variables, weights)

    load_hdf5 = copy_from

    def save(self, path: AnyPath) -> None:
        """Writes a .caffemodel, whatever the name ends in.

        Raises:
            WeightsError: if it cannot be written.
        """
        save_weights(path, self._running.graph, self._running.variables, hdf5=False)

    def save_hdf5(self, path: AnyPath, write_diff: bool = False) -> None:
        """Writes a .caffemodel.h5, whatever the name ends in, with the params' diffs if wanted.

        Raises:
            WeightsError: if it cannot be written.
        """
        diffs = self._running.param_diffs if write_diff else None
        save_weights(path, self._running.graph, self._running.variables, diffs, hdf5=True)

    def share_with(self, other: Net) -> None:
        """From now on layers of the same names have their blobs' data in common with another net.

        Raises:
            GraphError: if their blobs differ in number or shape.
        """
        theirs = dict(zip(other._layer_names, other._layer_blobs, strict=True))
        mine = [(n, b) for n, b in zip(self._layer_names, self._layer_blobs, strict=True) if n in theirs]
        shapes = [(n, [b.shape for b in blobs], [b.shape for b in theirs[n]]) for n, blobs in mine]
        if problems := [
            Problem(f"has blobs of shapes {here} in one net, {there} in the other", layer=name)
            for name, here, there in shapes
            if here != there
        ]:
            raise GraphError(problems)
        for name, blobs in mine:
            for blob, shared in zip(blobs, theirs[name], strict=True):
                blob.data_memory = shared.data_memory
        self._running.forget_passes()

    # -- below

    def _forward(self, first: int, last: int) -> float:
        """Runs layers by their indices; the weighted loss."""
        return float(sum(float(loss) for loss in self._run(first, last)))

    def _backward(self, high: int, low: int) -> None:
        """Runs layers backward by their indices."""
        self._running.backward(high, low)

    def _run(self, first: int, last: int) -> list[Any]:
        for layer in self._running.graph.layers[first : last + 1]:
            if takes_arrays(layer) and layer.key not in self._running.arrays:
                raise GraphError(Problem("has no data; call set_input_arrays first", layer=layer.name))
        return self._running.forward(first, last)

    def _batch(self, blobs: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Cuts arrays with all examples into batches as large as the net's; the last is filled up with zeros."""
        if not blobs:
            return
        size = next(iter(self.blobs.values())).shape[0]
        for start in range(0, len(next(iter(blobs.values()))), size):
            batch = {name: np.asarray(array[start : start + size]) for name, array in blobs.items()}
            yield {name: _filled(array, size) for name, array in batch.items()}

    def _cut(self, found: Mapping[str, list[Any]], n: int) -> Arrays:
        """Arrays of the rows found, without those that only filled up the last of the batches for `n` examples."""
        size = next(iter(self.blobs.values())).shape[0]
        filled = -(-n // size) * size
        return {name: np.asarray(rows[:n] if len(rows) == filled else rows) for name, rows in found.items()}

    def _set(
        self, which: str, arrays: Mapping[str, Any], expected: Sequence[str], mismatch: str, not_batch: str
    ) -> None:
        """Writes arrays for exactly these blobs."""
        if set(arrays) != set(expected):
            raise GraphError(f"{mismatch}: given {sorted(arrays)}, the net has {sorted(expected)}")
        for name, array in arrays.items():
            blob = self.blobs[name]
            if np.shape(array)[:1] != blob.shape[:1]:
                raise GraphError(f"{not_batch} not batch sized: '{name}' is {np.shape(array)}, the blob {blob.shape}")
            getattr(blob, which)[...] = array

    def _layer_index(self, name: str) -> int:
        if name not in self._layer_names:
            raise GraphError(f"no layer '{name}' in the net{did_you_mean(name, self._layer_names)}")
        return self._layer_names.index(name)

    def _blob(self, name: str) -> SyncedBlob:
        if name not in self.blobs:
            raise GraphError(f"no blob '{name}' in the net{did_you_mean(name, self.blobs)}")
        return self.blobs[name]


def _shown(layer: GraphLayer, blobs: list[SyncedBlob]) -> Any:
    """What `layers` shows of a layer."""
    user = layer.type.instance
    return NetLayer(layer.type.name, blobs) if user is None else user


def _layer_blobs(running: Running, layer: GraphLayer) -> list[SyncedBlob]:
    """A layer's blobs; one that it shares is another layer's memory, perhaps in another shape."""

    def blob(owner: SyncedBlob, shape: tuple[int, ...], owned: bool) -> SyncedBlob:
        return owner if owned else SyncedBlob(shape, owner.data_memory, owner.diff_memory)

    return [blob(running.slots[p.owner], p.spec.shape, p.owned) for p in layer.params]


def _filled(array: np.ndarray, size: int) -> np.ndarray:
    """An array filled up with rows of zeros."""
    return np.concatenate([array, np.zeros((size - len(array), *array.shape[1:]), array.dtype)])
