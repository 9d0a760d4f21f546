"""`caffe.Net`: a net with Caffe's Python interface."""

from __future__ import annotations

import os
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Literal

import numpy as np

from ..base.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    CaffejaxError,
    GraphError,
    Problem,
    ReadOnlyError,
    WeightsError,
    is_integer,
)
from ..base.paths import make_missing_problem
from ..base.variables import as_params
from ..core.checkpoints.load_save import load_weights, save_weights
from ..core.graph import Layer, Slot
from ..core.graph.trained_layers import match_layers
from ..core.layers.context import Phase
from ..core.layers.python.layer import BlobVec
from ..core.layers.python.layer import Layer as PythonLayer
from ..core.schema.caffe_pb2 import TEST, TRAIN
from ..tools.summary import summarize
from ._arguments import as_array, as_callable, as_index, as_instance, as_integer, as_list, as_name, as_names, as_path
from ._batch_reader import check_names, make_array_source, write_batch
from ._executor import Callback, Executor, open_executor
from ._old_names import refuse_attribute
from ._read_only import ReadOnlyDict, ReadOnlyList
from ._synced_memory import Memory, SyncedBlob


class BatchRows:
    """The rows of several batches of blobs, collected by blob name."""

    def __init__(self, names: Iterable[str]) -> None:
        self._rows: dict[str, list[Any]] = {name: [] for name in names}

    def add(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Append copies of the rows of a batch's arrays. A scalar counts as one row."""
        for name, array in arrays.items():
            self._rows[name].extend(np.atleast_1d(array).copy())

    def take_rows(self, n: int, size: int) -> dict[str, np.ndarray]:
        """Return the arrays of `n` examples, without the rows that padded the last batch to `size` examples."""
        num_padded_rows = -(-n // size) * size
        return {
            name: np.asarray(rows[:n] if len(rows) == num_padded_rows else rows) for name, rows in self._rows.items()
        }


def split_batches(arrays: Mapping[str, Any], size: int) -> Iterator[dict[str, np.ndarray]]:
    """Yield batches of `size` examples; the last is padded with zeros."""
    if not arrays:
        return
    for start in range(0, len(next(iter(arrays.values()))), size):
        batch = {name: np.asarray(array[start : start + size]) for name, array in arrays.items()}
        yield {name: _pad_batch(array, size) for name, array in batch.items()}


def _pad_batch(array: np.ndarray, size: int) -> np.ndarray:
    return np.concatenate([array, np.zeros((size - len(array), *array.shape[1:]), array.dtype)])


class NetLayer(PythonLayer):
    """A layer of a net.

    Attributes:
        blobs: the layer's parameters and running statistics.
    """

    def __init__(self, type: str, blobs: BlobVec) -> None:
        super().__init__()
        self._type: str
        self.__dict__.update(_type=type, blobs=blobs)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "blobs" and value is self.__dict__.get(name):
            return  # `layer.blobs += [blob]` has changed the list, and assigns the list
        if "_type" in self.__dict__ and hasattr(self, name):
            remedy = (
                "change the items of the list, as in layer.blobs[0] = blob"
                if name == "blobs"
                else "change the layer in the prototxt, and make a net with it"
            )
            raise ReadOnlyError(f"{name} of a layer of type {self._type} cannot be assigned to; {remedy}")
        super().__setattr__(name, value)

    @property
    def type(self) -> str:
        """Caffe's name of the type."""
        return self._type


def get_layer_item(layer: Layer, blobs: BlobVec) -> Any:
    """Return the item of `Net.layers` for a layer: the user's object for a Python layer, otherwise a `NetLayer`."""
    user_layer = layer.type.instance
    return NetLayer(layer.type.name, blobs) if user_layer is None else user_layer


_WRITE_BLOB = "write into the array of a blob, as in net.blobs['data'].data[...] = values"
_WRITE_PARAM = (
    "write into the array of a blob, as in net.params['fc'][0].data[...] = values, or assign to an item of a layer's "
    "list, as in net.params['fc'][0] = blob"
)
_WRITE_LOSS_WEIGHT = "write the weight into the diff of the loss, as in net.blobs['loss'].diff[...] = 2"
_READ_ONLY = {  # attributes that cannot be assigned to, with the remedies
    **dict.fromkeys(("blobs", "_blobs", "_blob_names"), _WRITE_BLOB),
    "params": _WRITE_PARAM,
    **dict.fromkeys(
        ("layers", "layer_dict", "_layer_names", "_layer_blobs", "inputs", "outputs", "_inputs", "_outputs"),
        "change the prototxt, and make a net with it",
    ),
    **dict.fromkeys(("bottom_names", "top_names"), "change the prototxt, and make a net with it"),
    **dict.fromkeys(("blob_loss_weights", "_blob_loss_weights"), _WRITE_LOSS_WEIGHT),
}

AnyPath = str | os.PathLike[str]
Arrays = dict[str, np.ndarray]


class Net:
    """A Caffe net with its blobs and parameters.

    The arguments are the same as in Caffe: `Net(file, phase)`, with optional `level`, `stages` and `weights`, or in the
    old form `Net(file, weights, phase)`.

    Args:
        network_file: a prototxt's path (or its text).
        phase: TRAIN or TEST.
        level, stages: the level and the stages of the net's state, by which the net includes or excludes layers.
        weights: a .caffemodel or .caffemodel.h5 to start from.
        strict_weights: if True, raise an error if the file lacks weights of a layer. If False, raise an error only if
            the file has weights for no layer. By default, both are only logged.

    Attributes:
        name: the net's name; scripts may change it.
        blobs: all blobs by name, in the order of computation.
        params: the blobs of each layer with parameters, by the layer's name.
        layers: all layers, in order; `layer_dict` has them by name. A Python layer is the user's object.

    Raises:
        CaffejaxError: if a file cannot be read or the net cannot be built; the error lists all problems with their
            positions.
    """

    def __init__(
        self,
        network_file: AnyPath,
        phase: int | AnyPath | None = None,
        level: int | None = None,
        stages: Sequence[str] | None = None,
        weights: AnyPath | None = None,
        *,
        strict_weights: bool | None = None,
    ) -> None:
        if phase is None:
            raise ArgumentTypeError("give a phase: Net(file, caffe.TEST) or Net(file, caffe.TRAIN)")
        if not is_integer(phase):
            file = as_path(phase, "the phase must be caffe.TEST or caffe.TRAIN; in the old form, the second argument")
            if level is None:
                raise CaffejaxError(
                    f'give a phase, caffe.TEST or caffe.TRAIN, not "{os.fspath(file)}"; with weights: '
                    'Net(file, caffe.TEST, weights="net.caffemodel")'
                )
            weights, phase, level = file, level, 0
        as_path(network_file, "a net's file")
        if not is_integer(phase) or phase not in (TRAIN, TEST):
            raise ArgumentValueError(f"the phase must be caffe.TEST or caffe.TRAIN, not {phase!r}")
        level = 0 if level is None else as_integer(level, "level")
        stages = [] if stages is None else as_list(stages, "stages")
        if not all(isinstance(stage, str) for stage in stages):
            raise ArgumentTypeError(f"stages must be names, not {stages!r}")
        if weights is not None and not os.path.exists(as_path(weights, "weights")):
            raise WeightsError(make_missing_problem(weights))
        phase_name: Phase = "TRAIN" if phase == TRAIN else "TEST"
        executor, loader = open_executor(network_file, phase_name, level, tuple(stages), weights, strict_weights)
        self._set_executor(executor)
        weakref.finalize(self, loader.close)

    @classmethod
    def _from_executor(cls, executor: Executor) -> Net:
        net = cls.__new__(cls)
        net._set_executor(executor)
        return net

    def _set_executor(self, executor: Executor) -> None:
        graph, memories = executor.graph, executor.memories
        names, lists = [layer.name for layer in graph.layers], memories.lists.lists
        items = [get_layer_item(layer, blobs) for layer, blobs in zip(graph.layers, lists, strict=True)]
        blob_names = list(memories.blobs)
        layers, wiring = "the layers of a net are those of its prototxt", "change the prototxt, and make a net with it"

        def make_wiring(attribute: str, names_by_layer: Iterable[tuple[str, Iterable[str]]]) -> ReadOnlyDict:
            lists = (
                (layer, ReadOnlyList(names, f"net.{attribute}['{layer}']", wiring)) for layer, names in names_by_layer
            )
            return ReadOnlyDict(lists, f"net.{attribute}", wiring, "layer")

        # in this way, because assigning to these attributes is an error
        self.__dict__.update(
            _executor=executor,
            blobs=ReadOnlyDict(memories.blobs.items(), "net.blobs", _WRITE_BLOB, "blob"),
            params=ReadOnlyDict(
                ((name, blobs) for name, blobs in zip(names, lists, strict=True) if blobs),
                "net.params",
                _WRITE_PARAM,
                "layer with params",
            ),
            layers=ReadOnlyList(items, "net.layers", layers),
            layer_dict=ReadOnlyDict(zip(names, items, strict=True), "net.layer_dict", layers, "layer"),
            inputs=list(graph.input_layer_tops),
            outputs=list(graph.outputs),
            bottom_names=make_wiring("bottom_names", ((layer.name, layer.bottoms) for layer in graph.layers)),
            top_names=make_wiring("top_names", ((layer.name, layer.tops) for layer in graph.layers)),
            _layer_blobs=lists,
            _layer_names=ReadOnlyList(names, "net._layer_names", layers),
            _blob_names=ReadOnlyList(blob_names, "net._blob_names", wiring),
            _blobs=ReadOnlyList(memories.blobs.values(), "net._blobs", _WRITE_BLOB),
            _inputs=ReadOnlyList(map(blob_names.index, graph.input_layer_tops), "net._inputs", wiring),
            _outputs=ReadOnlyList(map(blob_names.index, graph.outputs), "net._outputs", wiring),
        )
        self.name = graph.name

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("inputs", "outputs") and value is self.__dict__[name]:
            return  # `net.outputs += [name]` has changed the list, and assigns the list
        if name in _READ_ONLY:
            raise ReadOnlyError(f"net.{name} cannot be assigned to; {_READ_ONLY[name]}")
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        refuse_attribute(self, name)

    def __repr__(self) -> str:
        return f"Net {self._executor.graph!r}"

    def _repr_html_(self) -> str:
        return summarize(self._executor.graph)._repr_html_()

    @property
    def blob_loss_weights(self) -> OrderedDict[str, float]:
        """The loss weight of every blob, by name."""
        loss_weights = self._executor.graph.loss_weights
        items = ((name, loss_weights.get(name, 0.0)) for name in self._blob_names)
        return ReadOnlyDict(items, "net.blob_loss_weights", _WRITE_LOSS_WEIGHT, "blob")

    @property
    def _blob_loss_weights(self) -> list[float]:
        return ReadOnlyList(self.blob_loss_weights.values(), "net._blob_loss_weights", _WRITE_LOSS_WEIGHT)

    def _bottom_ids(self, i: int) -> list[int]:
        return list(
            map(
                self._blob_names.index,
                self._executor.graph.layers[as_index(i, "a layer's index", len(self.layers))].bottoms,
            )
        )

    def _top_ids(self, i: int) -> list[int]:
        return list(
            map(
                self._blob_names.index,
                self._executor.graph.layers[as_index(i, "a layer's index", len(self.layers))].tops,
            )
        )

    def forward(
        self, blobs: Iterable[str] | None = None, start: str | None = None, end: str | None = None, **kwargs: Any
    ) -> Arrays:
        """Run layers forward on the current blobs; data layers read their next batch.

        Args:
            blobs: names of blobs to return in addition to the outputs.
            start, end: names of the first and the last layer to run; default: the net's first and last layer.
            kwargs: an array for each of the net's inputs; without arrays the current blobs are used.

        Returns:
            The net's outputs, or with `end` the tops of that layer. The arrays are views of the blobs, which the next
            pass overwrites.
        """
        first = self._find_layer_index(start) if start is not None else 0
        last = self._find_layer_index(end) if end is not None else len(self.layers) - 1
        if kwargs:
            write_batch("data", kwargs, self.blobs, self.inputs)
        names = [*(self.top_names[end] if end is not None else self.outputs), *as_names(blobs, "blob", self.blobs)]
        self._run_forward(first, last)
        return {name: self._find_blob(name).data for name in dict.fromkeys(names)}

    def backward(
        self, diffs: Iterable[str] | None = None, start: str | None = None, end: str | None = None, **kwargs: Any
    ) -> Arrays:
        """Run layers backward, starting from the diffs stored in the blobs; the diffs of losses are their weights.

        The diffs of params add up until `clear_param_diffs`, except in layers that overwrite them, as in Caffe:
        Parameter, some layers of forks, and Python layers that assign them.

        Args:
            diffs: blobs whose diffs to return in addition to the inputs' diffs.
            start, end: names of the first and the last layer to run; the order is from outputs to inputs.
            kwargs: a diff for each of the net's outputs; without diffs the current diffs are used.

        Returns:
            The diffs of the net's inputs, or with `end` the diffs of that layer's bottoms.
        """
        return self._run_backward(False, diffs, start, end, kwargs)

    def deconv(
        self, diffs: Iterable[str] | None = None, start: str | None = None, end: str | None = None, **kwargs: Any
    ) -> Arrays:
        """Run a deconvolution pass (Zeiler and Fergus 2013), as in the fork of the Deep Visualization Toolbox.

        It is a backward pass in which a ReLU layer returns the positive part of its top's diff, independent of its
        bottom, and an LRN layer with `deconv_ignore: true` returns its top's diff unchanged. Arguments and result are
        the same as in `backward`.
        """
        return self._run_backward(True, diffs, start, end, kwargs)

    def backward_from_layer(
        self, start_name: str, start_diff: np.ndarray, diffs: Iterable[str] | None = None, zero_higher: bool = False
    ) -> Arrays:
        """Run layers backward from a layer in the middle of the net, as in the fork of the Deep Visualization Toolbox.

        Args:
            start_name: the name of the layer, which is also the name of its top.
            start_diff: the diff of this top.
            diffs: blobs whose diffs to return in addition to the inputs' diffs.
            zero_higher: set the diffs of later blobs to zero.

        Returns:
            The diffs of the net's inputs.

        Raises:
            GraphError: if there is no such layer or blob, or the shape of the diff differs from the blob's.
        """
        self._set_start_diff(start_name, start_diff, zero_higher)
        return self.backward(diffs=diffs, start=start_name)

    def deconv_from_layer(
        self, start_name: str, start_diff: np.ndarray, diffs: Iterable[str] | None = None, zero_higher: bool = False
    ) -> Arrays:
        """Run a deconvolution pass from a layer in the middle of the net. For arguments see `backward_from_layer`."""
        self._set_start_diff(start_name, start_diff, zero_higher)
        return self.deconv(diffs=diffs, start=start_name)

    def forward_all(self, blobs: Sequence[str] | None = None, **kwargs: Any) -> Arrays:
        """Run forward over any number of examples, in batches.

        Args:
            blobs: names of blobs to return in addition to the outputs.
            kwargs: for each of the net's inputs, an array with all examples along its first axis.

        Returns:
            Copies of the blobs by name, with one row per example. A loss, which is a scalar, has one value per batch.
        """
        rows = BatchRows((*self.outputs, *as_names(blobs, "blob", self.blobs)))
        self._check_batches("data", kwargs, self.inputs)
        for batch in self._batch(kwargs):
            rows.add(self.forward(blobs=blobs, **batch))
        return rows.take_rows(len(next(iter(kwargs.values()))), self._batch_size)

    def forward_backward_all(
        self, blobs: Sequence[str] | None = None, diffs: Sequence[str] | None = None, **kwargs: Any
    ) -> tuple[Arrays, Arrays]:
        """Run forward and backward over any number of examples, in batches.

        Args:
            blobs, diffs: names of blobs to return in addition to the outputs, and of diffs in addition to the inputs'
                diffs.
            kwargs: arrays for the net's inputs, and diffs for its outputs, with all examples along the first axis.

        Returns:
            Copies of the blobs and of the diffs.
        """
        rows = BatchRows((*self.outputs, *as_names(blobs, "blob", self.blobs)))
        diff_rows = BatchRows((*self.inputs, *as_names(diffs, "blob", self.blobs)))
        inputs = {name: a for name, a in kwargs.items() if name in self.inputs or name not in self.outputs}
        self._check_batches("data", inputs, self.inputs)
        self._check_batches("diff", {name: a for name, a in kwargs.items() if name in self.outputs}, self.outputs)
        input_batches = self._batch({name: kwargs[name] for name in self.inputs if name in kwargs})
        diff_batches = self._batch({name: kwargs[name] for name in self.outputs if name in kwargs})
        for batch, top_diffs in zip_longest(input_batches, diff_batches, fillvalue=dict[str, Any]()):
            rows.add(self.forward(blobs=blobs, **batch))
            diff_rows.add(self.backward(diffs=diffs, **top_diffs))
        n, size = len(next(iter(kwargs.values()))), self._batch_size
        return rows.take_rows(n, size), diff_rows.take_rows(n, size)

    def reshape(self) -> None:
        """Reshape the net to the current shapes of its input blobs.

        Raises:
            GraphError: if a layer does not support these shapes.
        """
        self._executor.reshape()

    def clear_param_diffs(self) -> None:
        """Set the diffs of all parameters to zero."""
        self._executor.memories.clear_param_diffs()

    def before_forward(self, callback: Callback) -> None:
        """Register a function that is called with each layer's index before its forward pass.

        A net with callbacks runs one layer at a time.
        """
        self._executor.callbacks["before_forward"].append(as_callable(callback, "a callback"))

    def after_forward(self, callback: Callback) -> None:
        """Register a function that is called with each layer's index after its forward pass."""
        self._executor.callbacks["after_forward"].append(as_callable(callback, "a callback"))

    def before_backward(self, callback: Callback) -> None:
        """Register a function that is called with each layer's index before its backward pass."""
        self._executor.callbacks["before_backward"].append(as_callable(callback, "a callback"))

    def after_backward(self, callback: Callback) -> None:
        """Register a function that is called with each layer's index after its backward pass."""
        self._executor.callbacks["after_backward"].append(as_callable(callback, "a callback"))

    def set_input_arrays(self, data: np.ndarray, labels: np.ndarray) -> None:
        """Set the arrays from which the net's first layer, a MemoryData layer, reads batches in a loop.

        Args:
            data: float32 (N, channels, height, width), contiguous; N must be a multiple of the batch size.
            labels: float32 (N,) or (N, 1, 1, 1), contiguous.

        Raises:
            GraphError: if the arrays do not fit the layer, or the first layer is not MemoryData.
        """
        graph = self._executor.graph
        data, labels = (np.atleast_1d(as_array(a, n, dtype=None)) for a, n in ((data, "data"), (labels, "labels")))
        self._executor.batch_reader.array_sources[graph.layers[0].key] = make_array_source(graph, data, labels)

    _set_input_arrays = set_input_arrays

    def copy_from(self, weights: AnyPath, strict: bool | None = None) -> None:
        """Copy the blobs of a .caffemodel or .caffemodel.h5 file into the layers with the same names.

        Args:
            weights: the file.
            strict: see `strict_weights` of `Net`.

        Raises:
            WeightsError: if the file cannot be read, if blobs do not fit, or, with `strict`, if blobs are missing.
        """
        as_path(weights, "weights")
        memories = self._executor.memories
        graph = memories.lists.describe(self._executor.graph)
        variables = memories.lists.get_arrays(graph, memories.device)
        memories.lists.store(graph, load_weights(weights, graph, variables, strict), memories.device)

    load_hdf5 = copy_from

    def save(self, path: AnyPath) -> None:
        """Write the parameters to a .caffemodel file; the file extension does not matter.

        Raises:
            WeightsError: if the file cannot be written.
        """
        self._save(path, write_diff=False, hdf5=False)

    def save_hdf5(self, path: AnyPath, write_diff: bool = False) -> None:
        """Write the parameters, and with `write_diff` their diffs, to a .caffemodel.h5 file.

        The file extension does not matter.

        Raises:
            WeightsError: if the file cannot be written.
        """
        self._save(path, write_diff, hdf5=True)

    save_to_hdf5 = save_hdf5  # its name in the fork of MNC

    def _save(self, path: AnyPath, write_diff: bool, hdf5: bool) -> None:
        as_path(path, "the file to write")
        lists, device = self._executor.memories.lists, self._executor.memories.device
        graph = lists.describe(self._executor.graph)
        diffs = as_params(lists.get_arrays(graph, device, diffs=True).params) if write_diff else None
        save_weights(path, graph, lists.get_arrays(graph, device), diffs, hdf5=hdf5)

    def share_with(self, other: Net) -> None:
        """Make layers of this net use the parameters of the layers of `other` that have the same names.

        From now on a change of these parameters in one net changes the other net. A parameter that several layers share
        is found by each of them. Of several layers with one name, those with the same tops belong together.

        Raises:
            GraphError: if the layers' blobs differ in number or shape, or if layers share a parameter in this net that
                they do not share in `other`.
        """
        as_instance(other, Net, "the other net")
        graph = self._executor.graph
        for net in (self, other):
            net._executor.memories.lists.adopt_blobs()
        matches = match_layers(graph, other._executor.graph)
        other_blobs = {
            layer.key: blobs for layer, blobs in zip(other._executor.graph.layers, other._layer_blobs, strict=True)
        }
        sources: dict[Slot, Memory] = {}
        sharers: dict[Slot, str] = {}
        problems: list[Problem] = []
        for layer, blobs in zip(graph.layers, self._layer_blobs, strict=True):
            source_blobs = other_blobs[matches[layer.key].key] if layer.key in matches else []
            shapes, source_shapes = [b.shape for b in blobs], [b.shape for b in source_blobs]
            if layer.key in matches and shapes != source_shapes:
                message = f"has blobs of shapes {shapes} in one net, but {source_shapes} in the other"
                problems.append(layer.make_problem(message))
                continue
            for param, source_blob in zip(layer.params, source_blobs, strict=False):
                if sources.setdefault(param.owner, source_blob.data_memory) is not source_blob.data_memory:
                    message = (
                        f"shares blob {param.index} with layer '{sharers[param.owner]}' in one net, but not in "
                        "the other; give the params of both nets the same names"
                    )
                    problems.append(layer.make_problem(message))
                sharers.setdefault(param.owner, layer.name)
        if problems:
            raise GraphError(problems)
        for layer, blobs in zip(graph.layers, self._layer_blobs, strict=True):
            for param, blob in zip(layer.params, blobs, strict=False):
                blob.data_memory = sources.get(param.owner, blob.data_memory)
        self._executor.forget_passes()

    def _forward(self, first: int, last: int) -> float:
        """Run layers `first` to `last` (indices, inclusive) forward; return the weighted loss."""
        first, last = (as_index(i, "a layer's index", len(self.layers)) for i in (first, last))
        return float(sum(float(loss) for loss in self._run_forward(first, last)))

    def _backward(self, high: int, low: int) -> None:
        self._executor.backward(*(as_index(i, "a layer's index", len(self.layers)) for i in (high, low)))

    def _deconv(self, high: int, low: int) -> None:
        self._executor.backward(*(as_index(i, "a layer's index", len(self.layers)) for i in (high, low)), deconv=True)

    def _run_backward(
        self, deconv: bool, diffs: Iterable[str] | None, start: str | None, end: str | None, output_diffs: Arrays
    ) -> Arrays:
        high = self._find_layer_index(start) if start is not None else len(self.layers) - 1
        low = self._find_layer_index(end) if end is not None else 0
        if output_diffs:
            write_batch("diff", output_diffs, self.blobs, self.outputs)
        names = self.bottom_names[end] if end is not None else self.inputs
        names = list(dict.fromkeys((*names, *as_names(diffs, "blob", self.blobs))))
        for layer in self._executor.graph.layers[low : high + 1]:
            if layer.type.gradient.overwrites_diffs:
                self._executor.memories.clear_param_diffs(layer)
        self._executor.backward(high, low, names, deconv)
        return {name: self._find_blob(name).diff for name in names}

    def _set_start_diff(self, name: str, diff: np.ndarray, zero_higher: bool) -> None:
        blob, diff = self._find_blob(name), as_array(diff, "start_diff")
        if np.shape(diff) != blob.shape:
            raise GraphError(f"Expected start_diff of shape {blob.shape} but got {np.shape(diff)}: blob '{name}'")
        blob.diff[...] = diff
        for later_name in self._blob_names[self._blob_names.index(name) + 1 :] if zero_higher else ():
            self.blobs[later_name].diff[...] = 0

    def _run_forward(self, first: int, last: int) -> list[Any]:
        return self._executor.forward(first, last)

    def _check_batches(self, which: Literal["data", "diff"], arrays: Mapping[str, Any], names: Sequence[str]) -> None:
        """Raise an error if arrays for several batches do not fit the net's inputs, or its outputs' diffs."""
        if arrays or which == "data":
            check_names(which, arrays, names)
        counts = {}
        for name, array in arrays.items():
            shape = as_array(array, f"the array for '{name}'", dtype=None).shape
            counts[name] = shape[:1]
            size, blob_shape = self._batch_size, self.blobs[name].shape
            # NumPy's assignment drops leading axes of length 1, which a batch of one example may have more of
            is_longer = size == 1 and shape[1:] == (1,) * (len(shape) - len(blob_shape)) + blob_shape[1:]
            if not (shape[1:] == blob_shape[1:] or is_longer) or not shape or not shape[0]:
                message = (
                    f"has shape {shape}, but must have shape (N, {', '.join(map(str, self.blobs[name].shape[1:]))})"
                )
                raise ArgumentValueError(f"the array for '{name}' {message}, where N is the number of examples")
        if len(set(counts.values())) > 1:
            raise ArgumentValueError(f"all arrays must have the same number of examples, not {counts}")

    def _batch(self, blobs: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        return split_batches(blobs, self._batch_size)

    @property
    def _batch_size(self) -> int:
        return next(iter(self.blobs.values())).shape[0]

    def _find_layer_index(self, name: str) -> int:
        return self._layer_names.index(as_name(name, "layer", self._layer_names))

    def _find_blob(self, name: str) -> SyncedBlob:
        blob: SyncedBlob = self.blobs[as_name(name, "blob", self.blobs)]
        return blob
