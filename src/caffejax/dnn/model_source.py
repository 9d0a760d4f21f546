"""The files of a net, from which it is built for shapes of its inputs.

OpenCV takes the shapes from `setInput`, so a prototxt may leave them out, or have 0 or -1 in them. Names and numbers of
layers, their types and their blobs are needed before. Therefore such a net is first built for guessed shapes, and again
if the inputs differ from them in more than sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.errors import UNKNOWN_TYPE, GraphError, Problem, WeightsError, shorten_list
from ..base.human_readable import format_count
from .custom_layers import CustomObject, is_custom
from .nodes import Shape

if TYPE_CHECKING:
    from ..base.variables import Variables
    from ..core.graph import Graph, Layer, Param
    from ..core.graph.graph import Slot
    from ..core.program.net import Net as CaffeNet
    from ..core.schema.caffe_pb2 import LayerParameter, NetParameter

StoredBlobs = Mapping[str, Sequence[np.ndarray | None]]
BuiltNet = tuple["CaffeNet", "Variables", "set[Slot]"]

_GUESSED_SIDES = (224, 227, 32, 28, 64, 300, 8, 16, 48, 96, 128, 256, 299, 320, 384, 416, 512)  # in the order of trying


class ModelSource:
    """A net's definition and weights.

    Attributes:
        input_names: the tops of the net's Input layers.
        unknown_inputs: the inputs whose shapes the definition does not state, with the sizes that it states; axes of
            unknown size are 0, and None stands for a shape of which nothing is known.
        has_layers: whether the net has layers besides inputs.
    """

    def __init__(
        self,
        message: NetParameter,
        file: str,
        stored_blobs: StoredBlobs,
        model: str,
        custom_objects: Sequence[CustomObject],
    ) -> None:
        """Create the source.

        Args:
            message: the definition.
            file: its file, for error messages.
            stored_blobs: the blobs of the .caffemodel by layer name.
            model: the .caffemodel, for error messages, or "" if there is none.
            custom_objects: the users' objects, which live as long as the source.
        """
        self._message, self._file, self._stored_blobs, self._model = message, file, stored_blobs, model
        self._custom_objects = custom_objects
        self.unknown_inputs: dict[str, tuple[int, ...] | None] = {}
        names: list[str] = []
        for layer in message.layer:
            if _is_net_input(layer):
                names += layer.top
                shapes = [tuple(max(0, int(n)) for n in shape.dim) for shape in layer.input_param.shape] or [()]
                shapes = shapes * len(layer.top) if len(shapes) == 1 else shapes
                for name, shape in zip(layer.top, shapes, strict=False):
                    if 0 in shape or not shape:
                        self.unknown_inputs[name] = shape or None
        self.input_names = tuple(names)
        self.has_layers = not all(_is_net_input(layer) for layer in message.layer)

    def build_first(self) -> BuiltNet | None:
        """Return the net for the shapes in the definition, or for guessed shapes; None if no guess fits.

        Raises:
            CaffejaxError: if the net cannot be built, or the weights do not fit it.
        """
        if not self.unknown_inputs:
            return self.build({})
        for shapes in self._guess_shapes():
            try:
                return self.build(shapes)
            except GraphError as error:
                if any(problem.message.startswith(UNKNOWN_TYPE) for problem in error.problems):
                    raise
            except Exception:
                continue
        return None

    def build(self, shapes: Mapping[str, Shape]) -> BuiltNet:
        """Return the net in phase TEST, its parameters and state, and the slots of blobs without weights.

        Args:
            shapes: shapes of inputs by name; other inputs have the shapes in the definition.

        Raises:
            CaffejaxError: if the net cannot be built, or the weights do not fit it.
        """
        from ..core.program.net import Net as CaffeNet

        message = self._message
        if shapes:
            message = type(message)()
            message.CopyFrom(self._message)
            for layer in message.layer:
                if _is_net_input(layer):
                    old_shapes = [tuple(shape.dim) for shape in layer.input_param.shape] or [()]
                    old_shapes = old_shapes * len(layer.top) if len(old_shapes) == 1 else old_shapes
                    del layer.input_param.shape[:]
                    for name, old_shape in zip(layer.top, old_shapes, strict=False):
                        layer.input_param.shape.add(dim=shapes.get(name, old_shape))
        try:
            net = CaffeNet(message, "TEST", file=self._file)
        except GraphError as error:
            if not any(problem.message.startswith(UNKNOWN_TYPE) for problem in error.problems):
                raise
            advice = (
                "cv2.dnn_registerLayer, after caffejax.dnn.install(), or caffejax.dnn.registerLayer adds a type in "
                "Python"
            )
            raise GraphError([*error.problems, advice]) from None
        return net, *_fill_with_zeros(net.graph, self._match_blobs(net.graph))

    def describe_remedy(self, layers: Sequence[Layer]) -> str:
        """Return the end of a message about layers without weights."""
        if not self._model:
            return "read the net with its .caffemodel"
        from ..core.checkpoints.match_by_name import describe_nearest

        names = ", ".join(shorten_list([f"'{name}'" for name, blobs in self._stored_blobs.items() if blobs]))
        nearest = describe_nearest(layers, self._stored_blobs)
        return f"{self._model} has weights for {names}, and layers match by name{nearest}; rename the layers"

    def _guess_shapes(self) -> Iterator[dict[str, Shape]]:
        """Yield guesses of the unknown shapes: images of common sizes, with the channels that the weights have."""
        for other_rank in (4, 2):
            for side in _GUESSED_SIDES:
                for channels in (3, 1):
                    yield {
                        name: self._guess_shape(name, sizes, 4 if i == 0 else other_rank, side, channels)
                        for i, (name, sizes) in enumerate(self.unknown_inputs.items())
                    }
            if len(self.unknown_inputs) == 1:
                return

    def _guess_shape(self, name: str, sizes: Shape | None, rank: int, side: int, channels: int) -> Shape:
        for layer in self._message.layer:
            blobs = self._stored_blobs.get(layer.name, ())
            if name in layer.bottom[:1] and blobs and blobs[0] is not None:
                weight_shape = blobs[0].shape
                if layer.HasField("inner_product_param") and sizes is None:
                    return (1, weight_shape[-1])
                if layer.HasField("convolution_param") and len(weight_shape) == 4:
                    channels = weight_shape[1] * max(1, layer.convolution_param.group)
                break
        guess = (1, channels, side, side)[:rank]
        if sizes is None:
            return guess
        return tuple(size or (guess[i] if i < rank else 1) for i, size in enumerate(sizes))

    def _match_blobs(self, graph: Graph) -> Mapping[Slot, np.ndarray]:
        """Return the arrays of the .caffemodel for a net, by slot.

        Raises:
            WeightsError: if the blobs do not fit the net, or the model has no blobs for any layer.
        """
        from ..base.paths import is_hdf5
        from ..core.checkpoints.match_by_name import match_blobs

        name = self._model
        if not name:
            return {}
        custom_names = {layer.name for layer in graph.layers if is_custom(layer.definition.layer)}
        stored_blobs = {layer: blobs for layer, blobs in self._stored_blobs.items() if layer not in custom_names}
        copies = name == "bufferModel" or not is_hdf5(name)
        arrays, report = match_blobs(graph, stored_blobs, name, stores_copies=copies)
        remedy = "use the .caffemodel that was made for this prototxt"
        if report.mismatched:
            layers = {problem.layer: problem for problem in reversed(report.mismatched)}
            examples = "; ".join(
                f"'{layer}', {p.message.partition(';')[0]}" for layer, p in [*reversed(layers.items())][:3]
            )
            count = format_count(len(layers), "layer")
            raise WeightsError(Problem(f"the weights of {count} do not fit the net ({examples}); {remedy}", name))
        if not arrays and graph.variables:
            names = ", ".join(shorten_list([layer for layer, blobs in stored_blobs.items() if blobs])) or "no layer"
            raise WeightsError(Problem(f"contains no weights for layers of this net, only for {names}; {remedy}", name))
        return arrays


def _is_net_input(layer: LayerParameter) -> bool:
    from ..core.layers import layer_type

    try:
        return layer_type(layer.type).is_net_input
    except GraphError:  # an unknown type, which `build` reports
        return False


def _fill_with_zeros(graph: Graph, arrays: Mapping[Slot, np.ndarray]) -> tuple[Variables, set[Slot]]:
    """Return a net's parameters and state, and the slots of the blobs that `arrays` does not contain.

    Parameters and state have the values in `arrays`. Blobs that are not in `arrays` have the values in the layer's
    definition, or are zero. They are NumPy's arrays, so that JAX has not started when a script forks processes that run
    the net.
    """
    from ..base.variables import Variables
    from ..core.checkpoints.match_by_name import find_missing_layers
    from ..core.program.initial_variables import param_from_definition

    missing_slots = {
        p.owner for layer in find_missing_layers(graph, arrays.keys()) for p in layer.params
    } - arrays.keys()

    def get_array(param: Param) -> Any:
        if param.slot in arrays:
            return arrays[param.slot]
        layer = graph.layer(param.slot.layer)
        if layer.definition.layer.blobs:
            with layer.locate_errors():
                return param_from_definition(layer, param)
        value = np.zeros(param.spec.shape) if param.spec.value is None else param.spec.value
        return np.asarray(value, np.float32)

    return Variables(*graph.map_variables(get_array)), missing_slots
