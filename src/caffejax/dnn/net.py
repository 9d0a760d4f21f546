"""A net with the interface of OpenCV 4's `cv2.dnn.Net`."""

from __future__ import annotations

import operator
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from math import prod
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.errors import CaffejaxError, Problem, describe_type, did_you_mean, shorten_list
from ..base.glog import warn_once
from ..base.human_readable import format_count
from .model_source import ModelSource
from .nodes import Node, Shape, count_operations, find_top_shapes, get_rules, list_nodes
from .opencv_errors import methods_raise_opencv_errors

if TYPE_CHECKING:
    from ..base.variables import Variables
    from ..core.graph import Graph, Param, Slot
    from ..core.program.frozen import Frozen
    from ..core.program.net import Net as CaffeNet

Array = np.ndarray

# OpenCV 4's numbers of backends and targets, some of which OpenCV 5 no longer has
DNN_BACKEND_DEFAULT, DNN_BACKEND_HALIDE, DNN_BACKEND_INFERENCE_ENGINE, DNN_BACKEND_OPENCV = range(4)
DNN_BACKEND_VKCOM, DNN_BACKEND_CUDA, DNN_BACKEND_WEBNN, DNN_BACKEND_TIMVX, DNN_BACKEND_CANN = range(4, 9)
DNN_TARGET_CPU, DNN_TARGET_OPENCL, DNN_TARGET_OPENCL_FP16, DNN_TARGET_MYRIAD, DNN_TARGET_VULKAN = range(5)
DNN_TARGET_FPGA, DNN_TARGET_CUDA, DNN_TARGET_CUDA_FP16, DNN_TARGET_HDDL, DNN_TARGET_NPU = range(5, 10)
DNN_TARGET_CPU_FP16 = 10
CONSTANTS = {name: value for name, value in globals().items() if name.startswith("DNN_")}

_CUDA_TARGETS = (DNN_TARGET_CUDA, DNN_TARGET_CUDA_FP16)
_BACKENDS = (DNN_BACKEND_DEFAULT, DNN_BACKEND_OPENCV, DNN_BACKEND_CUDA)  # the target alone selects the device
_EMPTY = "the net is empty; readNetFromCaffe reads a net"
_MAX_COMPILED = 4  # number of output selections whose compiled nets are cached


@methods_raise_opencv_errors
class Layer:
    """A layer of a net, as `Net.getLayer` returns it.

    Attributes:
        name: OpenCV's name of the layer.
        type: OpenCV's type of the layer.
        preferableTarget: the number of the net's target.
    """

    def __init__(self, net: Net, number: int, name: str, kind: str) -> None:
        self._net, self._number, self.name, self.type = net, number, name, kind
        self.preferableTarget = net._target

    @property
    def blobs(self) -> tuple[Array, ...]:
        """The layer's parameters and running statistics. To replace them, assign a sequence of arrays.

        A convolution to which only weights are assigned has no bias from then on: its bias is zero.
        """
        return tuple(self._net.getParam(self._number, i) for i in range(len(self._net._get_params(self._number))))

    @blobs.setter
    def blobs(self, arrays: Sequence[Any]) -> None:
        shapes = [param.spec.shape for param in self._net._get_params(self._number)]
        lacks_bias = get_rules(self.type).has_optional_bias and (len(arrays), len(shapes)) == (1, 2)
        values = [*arrays, np.zeros(shapes[1])] if lacks_bias else arrays
        if len(values) != len(shapes):
            raise CaffejaxError(f"layer '{self.name}' has {len(shapes)} blobs, but {len(arrays)} arrays were assigned")
        for i, array in enumerate(values):
            self._net.setParam(self._number, i, array)

    def outputNameToIndex(self, outputName: str) -> int:
        """Return the index of the output with this name.

        The outputs of layer 0 are the net's inputs; a name that is none of them gives -1. For other layers, return 0.
        """
        if self._number:
            return 0
        return self._net._opencv_input_names.index(outputName) if outputName in self._net._opencv_input_names else -1


@methods_raise_opencv_errors
class Net:
    """A Caffe net with OpenCV 4's interface. `readNetFromCaffe` returns a `Net`; `Net()` has no layers.

    Layers have OpenCV's names: a Convolution has the name of its top, and other layers have their names in the
    prototxt, which are also accepted for Convolutions. Layers are numbered from 1; layer 0 stands for the net's inputs.
    Shapes are lists of integers. Errors are `CaffejaxError`.
    """

    def __init__(self) -> None:
        self._target = DNN_TARGET_CPU
        self._nodes: list[Node] = []
        self._number_by_name: dict[str, int] = {}
        self._opencv_input_names: list[str] = []
        self._input_arrays: dict[str, Array] = {}
        self._missing_slots: set[Slot] = set()
        self._frozen_by_tops: OrderedDict[tuple[str, ...], Frozen] = OrderedDict()
        self._last_index, self._nanoseconds = 0, 0
        self._net: CaffeNet | None = None
        self._variables: Variables
        self._input_names: tuple[str, ...] = ()
        self._reshaped_graph: Graph
        self._source: ModelSource | None = None

    def _set_source(self, source: ModelSource) -> None:
        """Set the files that define the net. The net is built once the shapes of its inputs are known or guessed."""
        self._source = source
        self._input_names = source.input_names
        self._opencv_input_names = list(self._input_names)
        if (built_net := source.build_first()) is not None:
            self._set_net(*built_net)

    def _set_net(self, net: CaffeNet, variables: Variables, missing_slots: set[Slot]) -> None:
        """Set the net, in phase TEST, and its parameters and state. Blobs in `missing_slots` have no weights yet.

        Blobs that have the same shape in the net before keep their values, which `setParam` may have set.
        """
        if self._net is not None:
            for slot in (param.slot for param in net.graph.variables):
                for tree, old_tree in zip(variables, self._variables, strict=True):
                    old_array = old_tree.get(slot.layer, {}).get(slot.name)
                    if old_array is not None and old_array.shape == tree[slot.layer][slot.name].shape:
                        tree[slot.layer][slot.name] = old_array
                        missing_slots -= {slot} - self._missing_slots
        if self._input_names != net.graph.input_names:
            self._input_names = net.graph.input_names
            self._opencv_input_names = list(self._input_names)
        self._net = net.for_inference(net.graph.blobs)
        self._reshaped_graph = self._net.graph
        self._variables, self._missing_slots = variables, missing_slots
        self._frozen_by_tops.clear()
        self._nodes = list(list_nodes(net.graph, self._net.graph))
        self._number_by_name = {node.name: i for i, node in reversed([*enumerate(self._nodes, 1)])}
        for i, node in enumerate(self._nodes, 1):
            self._number_by_name.setdefault(node.layer.name, i)

    def _fit_shapes(self, shapes: Mapping[str, Shape]) -> None:
        """Reshape the net for inputs of these shapes, by name.

        Where the prototxt does not state the shapes, the net is built again if it was built for guessed ones that it
        cannot be reshaped from.
        """
        if self._source is None or not self._source.unknown_inputs:
            self._reshape(shapes)
            return
        if self._net is not None:
            old_shapes = {name: self._net.graph.blobs[name].shape for name in self._input_names}
            if all(len(old_shapes[name]) == len(shape) for name, shape in shapes.items()):
                with suppress(CaffejaxError):
                    self._reshape(shapes)
                    return
        elif unknown_names := [name for name in self._source.unknown_inputs if name not in shapes]:
            names = ", ".join(self._opencv_input_names[self._input_names.index(name)] for name in unknown_names)
            raise CaffejaxError(f"the prototxt does not state the shapes of these inputs: {names}; call setInput first")
        self._set_net(*self._source.build({**(old_shapes if self._net is not None else {}), **shapes}))
        self._reshape(shapes)

    def _require_nodes(self) -> list[Node]:
        if self._net is None and self._source is not None:
            self._fit_shapes({name: array.shape for name, array in self._input_arrays.items()})
        return self._nodes

    # -- layers

    def empty(self) -> bool:
        """Return whether the net has no layers."""
        return self._source is None or not (self._source.has_layers if self._net is None else self._nodes)

    def getLayerNames(self) -> tuple[str, ...]:
        """Return the names of all layers, without the inputs."""
        return tuple(node.name for node in self._require_nodes())

    def getLayerId(self, layer: str) -> int:
        """Return a layer's number, or -1 if no layer has this name."""
        self._require_nodes()
        return 0 if layer == "_input" else self._number_by_name.get(layer, -1)

    def getLayer(self, layerId: int | str | None = None, *, layerName: str | None = None) -> Layer:
        """Return a layer by number or name."""
        number = self._find_number(_choose("layerId or layerName", layerId, layerName))
        return Layer(self, number, *(self._nodes[number - 1][:2] if number else ("_input", "")))

    def getLayerTypes(self) -> tuple[str, ...]:
        """Return the types of all layers, each once, in alphabetical order."""
        return tuple(sorted({"__NetInputLayer__", *(node.type for node in self._require_nodes())}))

    def getLayersCount(self, layerType: str) -> int:
        """Return the number of layers of a type."""
        return sum(node.type == layerType for node in self._require_nodes())

    def getUnconnectedOutLayers(self) -> Array:
        """Return the numbers of the layers whose tops no layer reads, int32."""
        blobs_read = {bottom for node in self._require_nodes() for bottom in node.layer.bottoms}
        # the last node of a layer that OpenCV splits into two
        last_nodes = {id(node.layer): node for node in self._nodes}
        end_nodes = (node for node in last_nodes.values() if blobs_read.isdisjoint(node.layer.tops))
        return np.array([self._nodes.index(node) + 1 for node in end_nodes], np.int32)

    def getUnconnectedOutLayersNames(self) -> tuple[str, ...]:
        """Return the names of the layers whose tops no layer reads."""
        return tuple(self._nodes[i - 1].name for i in self.getUnconnectedOutLayers())

    def _find_number(self, layer: int | str) -> int:
        number = self.getLayerId(layer) if isinstance(layer, str) else _to_integer("a layer's number", layer)
        if not 0 <= number <= len(self._require_nodes()):
            hint = (
                _suggest(layer, sorted(self._number_by_name, key=lambda name: self._number_by_name[name]), "layers")
                if isinstance(layer, str)
                else f"; the last layer is {len(self._nodes)}"
            )
            raise CaffejaxError(f"no layer {layer!r} in the net{hint}")
        return number

    # -- parameters

    def _get_params(self, number: int) -> tuple[Param, ...]:
        return self._nodes[number - 1].params if number else ()

    def _find_param(self, layer: int | str, index: int) -> tuple[int, Param]:
        number, index = self._find_number(layer), _to_integer("the number of a blob", index)
        params = self._get_params(number)
        if not 0 <= index < len(params):
            raise CaffejaxError(f"layer {layer!r} has {len(params)} blobs, so there is no blob {index}")
        return number, params[index]

    def getParam(self, layer: int | str | None = None, numParam: int = 0, *, layerName: str | None = None) -> Array:
        """Return a float32 copy of a layer's blob. A blob with one axis is returned with two axes, as in OpenCV."""
        number, param = self._find_param(_choose("layer or layerName", layer, layerName), numParam)
        array = np.array(param.array(*self._variables), np.float32)
        if array.ndim > 1:
            return array
        return array.reshape((1, -1) if get_rules(self._nodes[number - 1].type).has_row_vectors else (-1, 1))

    def setParam(
        self, layer: int | str | None = None, numParam: int = 0, blob: Any = None, *, layerName: str | None = None
    ) -> None:
        """Set a layer's blob for the next `forward`, from an array with the blob's number of elements."""
        layer = _choose("layer or layerName", layer, layerName)
        _, param = self._find_param(layer, numParam)
        new_array = to_numbers(f"blob {numParam} of layer {layer!r}", _choose("blob", blob))
        old_array = param.array(*self._variables)
        if new_array.size != old_array.size:
            raise CaffejaxError(
                f"blob {numParam} of layer {layer!r} has shape {old_array.shape}, but the new array has shape "
                f"{new_array.shape}"
            )
        tree = self._variables[not param.spec.learnable]
        blobs: dict[str, Any] = {**tree[param.owner.layer]}
        blobs[param.owner.name] = new_array.reshape(blobs[param.owner.name].shape)
        new_tree = {**tree, param.owner.layer: blobs}
        field = "params" if param.spec.learnable else "state"
        self._variables = self._variables._replace(**{field: new_tree})
        self._missing_slots.discard(param.owner)
        self._frozen_by_tops.clear()

    # -- inputs and outputs

    def setInputsNames(self, inputBlobNames: Sequence[str]) -> None:
        """Rename the inputs."""
        names = to_names("setInputsNames", inputBlobNames)
        if len(names) != len(self._opencv_input_names):
            raise CaffejaxError(
                f"the net has {len(self._opencv_input_names)} inputs, but {len(names)} names were given"
            )
        self._opencv_input_names = names

    def setInputShape(self, inputName: str, shape: Sequence[int]) -> None:
        """Reshape the net for a new shape of an input. `setInput` accepts arrays of new shapes without this call."""
        self._fit_shapes({self._find_input(inputName): _to_shape(shape)})

    def setInput(self, blob: Any, name: str | None = "", scalefactor: float | None = 1.0, mean: Any = ()) -> None:
        """Copy an input's values: `(blob - mean) * scalefactor`.

        Args:
            blob: an array of any dtype and of any shape that the net supports.
            name: the name of the input; default: the first input.
            scalefactor: the factor; None: 1.
            mean: a number, or up to four numbers, one for each channel; None: 0.
        """
        input_name = self._find_input(name or "")
        array = to_numbers(f"input '{input_name}'", blob)
        scalefactor = float(to_numbers("scalefactor", 1 if scalefactor is None else scalefactor, shape=()))
        means = np.zeros(4)
        numbers = np.ravel(to_numbers("mean", () if mean is None else mean)).astype(np.float64)
        if len(numbers) > 4 or (numbers.any() and array.ndim > 1 and array.shape[1] > 4):
            raise CaffejaxError(
                f"input '{input_name}': mean must have at most 4 numbers, for at most 4 channels, but has "
                f"{len(numbers)} for a blob of shape {array.shape}"
            )
        means[: len(numbers)] = numbers
        if scalefactor != 1 or means.any():
            if array.ndim > 1 and len(set(means[: array.shape[1]])) > 1:
                array -= means[: array.shape[1]].reshape(-1, *[1] * (array.ndim - 2)).astype(np.float32)
            else:
                array -= np.float32(means[0])
            array *= np.float32(scalefactor)
        self._input_arrays[input_name] = array

    def forward(
        self,
        outputName: str | Sequence[str] | None = "",
        outputBlobs: Any = None,
        *,
        outBlobNames: Sequence[str] | None = None,
    ) -> Any:
        """Run the layers that lead to an output.

        Args:
            outputName: the name of a layer, or a sequence of names; default, and for None: the last layer. An array,
                OpenCV's `outputBlobs` by position, is ignored; the name may then follow as the second argument.
            outputBlobs: ignored.
            outBlobNames: OpenCV's other name of `outputName`, for a sequence.

        Returns:
            The first top of the layer as a new float32 array. For a sequence of names, a tuple of such arrays. After an
            array, and for an empty sequence, a tuple of all tops of the layer.

        Raises:
            CaffejaxError: if no layer has a name, an input is missing, or the net cannot run on the inputs' shapes.
        """
        outputName = outputName if outBlobNames is None else outBlobNames
        outputName = "" if outputName is None else outputName
        if isinstance(outputName, np.ndarray):
            return self.forwardAndRetrieve([outputBlobs if isinstance(outputBlobs, str) else ""])[0]
        names = [outputName] if isinstance(outputName, str) else to_names("forward", outputName)
        if not names:
            return self.forwardAndRetrieve([""])[0]
        nodes = [self._find_output(name) for name in names]
        blobs = self._run(tuple(dict.fromkeys(node.tops[0] for node in nodes)))
        arrays = tuple(blobs[node.tops[0]].copy() for node in nodes)
        return arrays[0] if isinstance(outputName, str) else arrays

    def forwardAndRetrieve(self, outBlobNames: Sequence[str]) -> tuple[tuple[Array, ...], ...]:
        """Return all tops of each of the named layers."""
        nodes = [self._find_output(name) for name in to_names("forwardAndRetrieve", outBlobNames)]
        if not nodes:
            return ()
        blobs = self._run(tuple(dict.fromkeys(top for node in nodes for top in node.tops)))
        return tuple(tuple(blobs[top].copy() for top in node.tops) for node in nodes)

    def forwardAsync(self, outputName: str = "") -> Any:
        """Raise an error, because nets do not run in the background; in OpenCV, only Intel's inference engine does."""
        raise CaffejaxError(
            "forwardAsync is not supported; call forward, in a thread if the program must not wait for it"
        )

    def quantize(self, calibData: Any, inputsDtype: int, outputsDtype: int, perChannel: bool = True) -> Net:
        """Raise an error, because int8 is not supported."""
        raise CaffejaxError("quantize is not supported: nets compute in float32")

    def _find_output(self, name: str) -> Node:
        nodes = self._require_nodes()
        if self._source is None:
            raise CaffejaxError(_EMPTY)
        if not nodes:
            raise CaffejaxError("the net has only inputs, and no layer to run")
        number = self._find_number(name) if name else len(nodes)
        if not number or not nodes[number - 1].tops:
            raise CaffejaxError(f"layer '{name or nodes[-1].name}' has no output")
        return nodes[number - 1]

    def _require_net(self) -> CaffeNet:
        self._require_nodes()
        if self._net is None:
            raise CaffejaxError(_EMPTY)
        return self._net

    def _find_input(self, name: str) -> str:
        if self._source is None:
            raise CaffejaxError(_EMPTY)
        if not self._input_names:
            producers = [f"'{layer.name}' ({layer.type.name})" for layer in self._require_net().graph.layers][:1]
            raise CaffejaxError(
                f"the net has no inputs to set: it begins with layer {''.join(producers)}; replace that by a layer of "
                'type "Input"'
            )
        if name and name not in self._opencv_input_names:
            raise CaffejaxError(f"no input '{name}' in the net{_suggest(name, self._opencv_input_names, 'inputs')}")
        return self._input_names[self._opencv_input_names.index(name) if name else 0]

    def _run(self, tops: tuple[str, ...]) -> dict[str, Array]:
        """Return the blobs `tops` for the current inputs, in OpenCV's shapes."""
        import jax

        if self._source is not None and self._source.unknown_inputs and self._input_arrays:
            self._fit_shapes({name: array.shape for name, array in self._input_arrays.items()})
        frozen = self._compile(tops)
        if missing := [
            self._opencv_input_names[self._input_names.index(n)]
            for n in frozen.input_names
            if n not in self._input_arrays
        ]:
            raise CaffejaxError(f"call setInput before forward for these inputs: {', '.join(missing)}")
        start = time.perf_counter_ns()
        inputs = {name: self._to_device(self._input_arrays[name]) for name in frozen.input_names}
        try:
            blobs = frozen(inputs, jax.random.key(0) if frozen.may_draw(inputs) else None)
        except CaffejaxError as error:
            if problem := self._describe_input_problem():
                raise CaffejaxError(problem) from error
            raise
        arrays = {name: np.array(blob, np.float32) for name, blob in frozen.strip_padding(blobs).items()}
        for node in self._nodes:
            if get_rules(node.layer.definition.layer.type).has_detections and node.tops[0] in arrays:
                self._reshape({name: array.shape for name, array in self._input_arrays.items()})
                rows = arrays[node.tops[0]].reshape(-1, 7)
                rows = rows[rows[:, 1] >= 0]  # without Caffe's row for an image in which nothing was detected
                arrays[node.tops[0]] = np.zeros(find_top_shapes(self._reshaped_graph, node)[0], np.float32)
                arrays[node.tops[0]][0, 0, : len(rows)] = rows[np.lexsort((-rows[:, 2], rows[:, 0]))]
        self._nanoseconds = time.perf_counter_ns() - start
        self._last_index = max(i for i, node in enumerate(self._nodes) if not set(tops).isdisjoint(node.tops))
        return arrays

    def _describe_input_problem(self) -> str | None:
        """Return a message if an input is no batch of images with the net's channels, or None."""
        unknown_inputs = {} if self._source is None else self._source.unknown_inputs
        for name, array in self._input_arrays.items():
            if name in unknown_inputs:
                continue
            shape = self._require_net().graph.blobs[name].shape
            if len(shape) == 4 and (array.ndim != 4 or array.shape[1] != shape[1]):
                opencv_name = self._opencv_input_names[self._input_names.index(name)]
                return (
                    f"input '{opencv_name}' has shape {array.shape}, but the net takes a batch of images, such as "
                    f"{shape}; use blobFromImage, which makes such an array from an image with "
                    f"{format_count(shape[1], 'channel')}"
                )
        return None

    def _compile(self, tops: tuple[str, ...]) -> Frozen:
        frozen = self._frozen_by_tops.pop(tops, None)
        if frozen is None:
            net = self._require_net().for_inference(tops)
            layers = [layer for layer in net.graph.layers if any(p.owner in self._missing_slots for p in layer.params)]
            if layers:
                names = ", ".join(shorten_list([f"'{layer.name}'" for layer in layers]))
                message = f"{format_count(len(layers), 'layer')} without weights: {names}"
                assert self._source is not None
                raise CaffejaxError(Problem(f"{message}; {self._source.describe_remedy(layers)}", net.graph.file))
            frozen = net.freeze(self._variables, tops)
        self._frozen_by_tops[tops] = frozen
        while len(self._frozen_by_tops) > _MAX_COMPILED:
            self._frozen_by_tops.popitem(last=False)
        return frozen

    def _to_device(self, array: Array) -> Any:
        import jax

        from ..core.ops.compilation import has_only_cpus

        if self._target in _CUDA_TARGETS and not has_only_cpus():
            return jax.device_put(array, jax.devices()[0])
        if self._target in _CUDA_TARGETS:
            warn_once("caffejax.dnn: JAX finds no GPU, so the target CUDA is the CPU here")
        return array if has_only_cpus() else jax.device_put(array, jax.local_devices(backend="cpu")[0])

    # -- settings

    def setPreferableBackend(self, backendId: int) -> None:
        """Accept a backend. The target alone selects where a net runs."""
        if backendId not in _BACKENDS:
            name = _name_constant("DNN_BACKEND_", backendId)
            warn_once(f"caffejax.dnn: backend {name} is not available; XLA and oneDNN compute")

    def setPreferableTarget(self, targetId: int) -> None:
        """Select the device: DNN_TARGET_CUDA and DNN_TARGET_CUDA_FP16 are JAX's GPU, in float32; others are the CPU."""
        if targetId not in (DNN_TARGET_CPU, *_CUDA_TARGETS):
            name = _name_constant("DNN_TARGET_", targetId)
            warn_once(f"caffejax.dnn: target {name} is not available; the net runs on the CPU")
        self._target = targetId

    def enableFusion(self, fusion: bool) -> None:
        """Accept the setting, which has no effect: layers are always fused."""

    def enableWinograd(self, useWinograd: bool) -> None:
        """Accept the setting, which has no effect."""

    def setHalideScheduler(self, scheduler: str) -> None:
        """Accept the setting, which has no effect."""

    # -- shapes and costs

    def _reshape(self, shapes: Mapping[str, Shape]) -> None:
        from ..core.graph.reshape import reshape_graph

        self._require_net()
        current = {name: self._reshaped_graph.blobs[name].shape for name in self._input_names}
        self._reshaped_graph = reshape_graph(self._reshaped_graph, {**current, **shapes})

    def _get_input_size(self) -> tuple[int, int]:
        """Return width and height of the first input, or (0, 0) if it is no image or of unknown size."""
        if not self._input_names or (self._source is not None and self._input_names[0] in self._source.unknown_inputs):
            return (0, 0)
        shape: Shape = self._reshaped_graph.blobs[self._input_names[0]].shape
        return (shape[3], shape[2]) if len(shape) == 4 else (0, 0)

    def _infer_shapes(self, netInputShapes: Any) -> tuple[list[tuple[Shape, ...]], list[tuple[Shape, ...]]]:
        """Return two lists for the given input shapes: the shapes of the bottoms and of the tops of all layers.

        The first item of both lists is for layer 0, and contains the shapes of the inputs.
        """
        if self._source is None:
            raise CaffejaxError(_EMPTY)
        is_list = len(netInputShapes) != 0 and np.ndim(netInputShapes[0]) > 0
        shapes = [_to_shape(shape) for shape in (netInputShapes if is_list else [netInputShapes])]
        if len(shapes) != len(self._input_names):
            raise CaffejaxError(f"the net has {len(self._input_names)} inputs, but {len(shapes)} shapes were given")
        self._fit_shapes(dict(zip(self._input_names, shapes, strict=True)))
        graph = self._reshaped_graph
        bottoms = [tuple(graph.blobs[name].shape for name in node.layer.bottoms) for node in self._nodes]
        return [tuple(shapes), *bottoms], [tuple(shapes), *(find_top_shapes(graph, node) for node in self._nodes)]

    def getLayersShapes(
        self, netInputShapes: Any = None, *, netInputShape: Any = None
    ) -> tuple[Array, tuple[tuple[Array, ...], ...], tuple[tuple[Array, ...], ...]]:
        """Return the ids of all layers, and the shapes of their bottoms and tops, as int32 arrays.

        Id 0 stands for the net's inputs, as in OpenCV.
        """
        arrays: Any = (
            [tuple(np.array(shape, np.int32) for shape in shapes) for shapes in layers]
            for layers in self._infer_shapes(_choose("netInputShapes", netInputShapes, netInputShape))
        )
        bottoms, tops = map(tuple, arrays)
        return np.arange(len(self._nodes) + 1, dtype=np.int32), bottoms, tops

    def getLayerShapes(self, netInputShapes: Any, layerId: int) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """Return the shapes of a layer's bottoms and tops. OpenCV has this method only in C++."""
        _, bottoms, tops = self.getLayersShapes(netInputShapes)
        number = self._find_number(layerId)
        return bottoms[number], tops[number]

    def _split_arguments(
        self, layer_and_shapes: tuple[Any, ...], layer: int | None, shapes: Any
    ) -> tuple[Sequence[int], Any]:
        """Return the number of the passed layer, or of all layers by default, and the result of `_infer_shapes`.

        Args:
            layer_and_shapes: the positional arguments: `[layerId,] netInputShapes`, of which those are absent that were
                passed by name.
            layer: the layer that was passed by name.
            shapes: the shapes that were passed by name.
        """
        layers = [*layer_and_shapes] if layer is None else [layer, *layer_and_shapes]
        shapes = shapes if shapes is not None or not layer_and_shapes else layers.pop()
        numbers = [self._find_number(*layers)] if layers else range(len(self._nodes) + 1)
        return numbers, self._infer_shapes(_choose("netInputShapes", shapes))

    def getFLOPS(
        self, *layer_and_shapes: Any, layerId: int | None = None, netInputShapes: Any = None, netInputShape: Any = None
    ) -> int:
        """Return the number of operations by OpenCV's rules: `getFLOPS([layerId,] netInputShapes)`."""
        shapes = netInputShape if netInputShapes is None else netInputShapes
        numbers, (bottoms, tops) = self._split_arguments(layer_and_shapes, layerId, shapes)
        return sum(count_operations(self._nodes[i - 1], bottoms[i], tops[i]) for i in numbers if i)

    def getMemoryConsumption(
        self, *layer_and_shapes: Any, layerId: int | None = None, netInputShapes: Any = None, netInputShape: Any = None
    ) -> tuple[int, int]:
        """Return the bytes of parameters and of tops: `getMemoryConsumption([layerId,] netInputShapes)`."""
        shapes = netInputShape if netInputShapes is None else netInputShapes
        numbers, (_, tops) = self._split_arguments(layer_and_shapes, layerId, shapes)
        weights = sum(4 * prod(param.spec.shape) for i in numbers for param in self._get_params(i))
        return weights, sum(4 * prod(shape) for i in numbers for shape in tops[i])

    def getPerfProfile(self) -> tuple[int, Array]:
        """Return the duration of the last `forward`, and of each layer in it, in ticks of OpenCV's clock.

        Layers are compiled together, so the last layer that ran has the full duration, and others have 0.
        """
        durations = np.zeros(len(self._nodes))
        if self._nodes:
            durations[self._last_index] = self._nanoseconds
        return self._nanoseconds, durations

    def dump(self) -> str:
        """Return the graph of layers, with types and shapes, in the DOT language."""
        producers = {top: node.name for node in self._nodes for top in node.layer.tops}
        lines = []
        for node in self._nodes:
            shapes = [" x ".join(map(str, shape)) for shape in find_top_shapes(self._reshaped_graph, node)]
            text = "".join(rf"{part}\l" for part in (node.name, node.type, *(f"output: {s}" for s in shapes)))
            lines.append(f"\t{_quote(node.name)} [label={_quote(text)} style=filled shape=box]")
        for node in self._nodes:
            for bottom in node.layer.bottoms:
                lines.append(f"\t{_quote(producers.get(bottom, '_input'))} -> {_quote(node.name)}")
        return "\n".join(["digraph G {", *lines, "}", ""])

    def dumpToFile(self, path: str) -> None:
        """Write the text of `dump` to a file."""
        from ..base.atomic_write import replace_file

        with replace_file(path, CaffejaxError) as file:
            file.write(self.dump().encode())


def as_array(value: Any) -> Array:
    """Return a copy of a value as an array; OpenCV's UMat is such a value, too."""
    return np.array(value.get() if type(value).__name__ == "UMat" else value)


def to_numbers(name: str, value: Any, shape: Shape | None = None) -> Array:
    """Return a copy of an argument as a float32 array, which must have the given shape if there is one.

    Raises:
        CaffejaxError: if the argument does not consist of real numbers, or has a different shape.
    """
    try:
        array = as_array(value)
    except ValueError:  # lists of different lengths
        array = np.array(None)
    if array.dtype.kind not in "fiub" or (shape is not None and array.shape != shape):
        kind = "one number" if shape == () else "an array of numbers"
        raise CaffejaxError(f"{name}: expected {kind}, not {describe_type(value)}")
    with np.errstate(over="ignore"):
        return array.astype(np.float32, copy=False)


def _to_integer(name: str, value: Any) -> int:
    if not isinstance(value, Integral):
        raise CaffejaxError(f"{name} must be an integer, not {describe_type(value)}")
    return int(value)


def _to_shape(value: Any) -> Shape:
    try:
        shape = tuple(operator.index(size) for size in value)
    except TypeError:
        shape = (-1,)
    if any(size < 0 for size in shape):
        raise CaffejaxError(
            f"a shape must consist of integers that are not negative, such as 1, 3, 224, 224, not {value!r}"
        )
    return shape


def to_names(method: str, value: Any) -> list[str]:
    """Return an argument as a list of names.

    Raises:
        CaffejaxError: if it is not a sequence of strings.
    """
    is_sequence = isinstance(value, Sequence) and not isinstance(value, str)
    if not is_sequence or not all(isinstance(name, str) for name in value):
        raise CaffejaxError(f"{method} takes the name of a layer, or a sequence of names, not {describe_type(value)}")
    return list(value)


def _choose(name: str, *values: Any) -> Any:
    """Return the argument that was passed. OpenCV has several names for one argument, by its type."""
    for value in values:
        if value is not None:
            return value
    raise CaffejaxError(f"missing argument: {name}")


def _suggest(name: str, names: Iterable[str], kind: str) -> str:
    """Return the end of a message about an unknown name: the most similar name, or else a list of the names."""
    return did_you_mean(name, names) or f"; its {kind} are {', '.join(shorten_list([*names]))}"


def _name_constant(prefix: str, number: int) -> str:
    """Return the name of the constant with this number, or the number if no constant with the prefix has it."""
    names = (name for name, value in CONSTANTS.items() if name.startswith(prefix) and value == number)
    return next(names, str(number))


def _quote(text: str) -> str:
    return '"' + text.replace('"', r"\"") + '"'
