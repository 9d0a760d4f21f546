"""Draw a net as a graph of layers and blobs, or draw a layer's filters, or a blob's channels for an image.

Graphs in formats other than .dot need Graphviz; for .svg the package mini-racer is enough. Filters and channels need
--weights, and are drawn as tiles from black (lowest value) to white (highest value). Images are preprocessed as in
`caffejax classify --center_only`, with the same flags.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from itertools import islice
from typing import TYPE_CHECKING

from ..base.errors import CaffejaxError, DataError, GraphError, Problem
from . import device_flags, flags, image_flags, net_flags

if TYPE_CHECKING:
    import numpy as np

    from ..core.program.net import Net

HELP = "draw a net, its filters, or a blob for an image"
EXAMPLE = "caffejax draw deploy.prototxt --weights=net.caffemodel --blob=conv1 --image=cat.jpg --out=conv1.png"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    net_flags.add_net_argument(parser)
    flags.add(parser, "out", "the picture; the extension selects the format", required=True, metavar="FILE")
    flags.add(
        parser,
        "phase",
        "the net's phase (default: ALL for the graph, otherwise TEST)",
        choices=("TRAIN", "TEST", "ALL"),
    )
    flags.add(parser, "weights", "the net's weights, for filters and blobs", metavar="FILE")
    net_flags.add_strict_flag(parser)
    net_flags.add_state_flags(parser)
    _add_graph_flags(flags.get_group(parser, "the graph"))
    _add_tile_flags(flags.get_group(parser, "filters and blobs"))
    image_flags.add_preprocessing_flags(parser, raw_scale=255.0, channel_swap=(2, 1, 0))
    device_flags.add_device_flags(parser)


def _add_graph_flags(group: flags.ParserOrGroup) -> None:
    flags.add(group, "rankdir", "direction in which the graph is drawn", choices=("LR", "RL", "TB", "BT"), default="LR")
    flags.add_switch(group, "display_lrm", "show the learning rate multipliers")


def _add_tile_flags(group: flags.ParserOrGroup) -> None:
    flags.add_switch(group, "filters", "draw the filters of a convolution")
    flags.add(group, "layer", "the layer of --filters (default: the first with filters larger than 1 x 1)")
    flags.add_switch(group, "rgb", "the three channels are red, green, blue (default: blue first, as in Caffe)")
    flags.add(group, "blob", "draw this blob's channels")
    flags.add(group, "image", "the image for --blob (default: an example of the net's data)", metavar="FILE")
    example_help = "the number of the example in the net's data, counted from 0"
    flags.add(group, "example", example_help, type=flags.parse_count, default=0, metavar="N")
    dims_help = "height and width to resize to before cropping (default: the input's)"
    flags.add(group, "images_dim", dims_help, type=image_flags.parse_integers, metavar="H,W")
    flags.add(group, "maps", "draw only the first N tiles (default: all)", type=flags.parse_positive, metavar="N")
    flags.add_switch(group, "each", "scale each tile from black to white separately (default: all tiles together)")
    size_help = "approximate longer side of the picture, in pixels"
    flags.add(group, "size", size_help, type=flags.parse_positive, default=800, metavar="N")


def run(options: argparse.Namespace) -> None:
    """Draw the net, its filters or a blob."""
    if options.filters and options.blob:
        raise CaffejaxError("--filters and --blob cannot be combined; pass one of them")
    if not (options.filters or options.blob):
        draw_graph(options, options.phase or "ALL")
        return
    if options.weights is None:
        raise CaffejaxError("filters and blobs need the net's weights: --weights=FILE")
    image_flags.check_image_path(options.out)
    options.phase = options.phase or "TEST"
    if options.phase == "ALL":
        raise CaffejaxError("filters and blobs belong to one phase: give --phase=TRAIN or --phase=TEST")
    with device_flags.default_device_scope(options):
        (_draw_filters if options.filters else _draw_blob)(options)


def draw_graph(options: argparse.Namespace, phase: str) -> None:
    """Draw the layers of `phase` ("TRAIN", "TEST" or "ALL") and their blobs."""
    from pathlib import Path

    from ..base.atomic_write import check_writable
    from ..base.glog import start_logging
    from ..core.schema import caffe_pb2, read_net
    from ..pycaffe.draw import draw_net_to_file

    start_logging()
    check_writable(options.out)
    net = read_net(Path(options.model))
    phase_value = None if phase == "ALL" else caffe_pb2.Phase.Value(phase)
    with image_flags.convert_value_errors(options.model):
        draw_net_to_file(net, options.out, options.rankdir, phase_value, options.display_lrm)
    print(f"Drew {options.out}")


class draw_net:  # noqa: N801  named like Caffe's script
    """Draw a net as a graph. Formats other than .dot need Graphviz; for .svg the package mini-racer is enough."""

    HELP = "draw a net"
    EXAMPLE = "caffejax draw_net train_val.prototxt net.svg --phase=TRAIN"

    @staticmethod
    def add_flags(parser: argparse.ArgumentParser) -> None:
        """Add the command's flags."""
        parser.add_argument("model", help="the net prototxt", metavar="NET")
        parser.add_argument("out", help="the picture; the extension selects the format", metavar="FILE")
        flags.add(parser, "phase", "only the layers of this phase", choices=("TRAIN", "TEST", "ALL"), default="ALL")
        _add_graph_flags(parser)

    @staticmethod
    def run(options: argparse.Namespace) -> None:
        """Draw the net."""
        draw_graph(options, options.phase)


def _draw_filters(options: argparse.Namespace) -> None:
    import numpy as np

    from ..base.errors import did_you_mean
    from ..tools.debugging.visualize import find_first_filters, get_filter_weights, make_filter_maps

    net = net_flags.build_net(options)
    filters_by_layer = get_filter_weights(net.graph)
    filters = filters_by_layer.get(options.layer) if options.layer else find_first_filters(net.graph)
    if filters is None:
        message = "no layer has filters larger than 1 x 1"
        if options.layer:
            message = f"there is no layer '{options.layer}' with filters (weights with four axes)"
            message += did_you_mean(options.layer, filters_by_layer)
        raise GraphError(
            Problem(f"{message}; layers with filters: {', '.join(filters_by_layer) or 'none'}", options.model)
        )
    params = net_flags.load_variables(net, options.weights, options.strict_weights).params
    weights = np.asarray(params[filters.owner.layer][filters.owner.name])
    image_flags.write_tiles(
        make_filter_maps(weights, rgb=options.rgb), options, f"{filters.slot.layer} {weights.shape}"
    )


def _draw_blob(options: argparse.Namespace) -> None:
    import numpy as np

    from ..core.data.loader import Loader
    from ..core.program.net_arguments import check_blob_names
    from ..core.solver.intermediates import extract_features
    from ..tools.debugging.visualize import make_feature_maps

    flags.check_output_path(options.out, options.image)
    net = net_flags.build_net(options)
    check_blob_names(net.graph, "--blob", [options.blob])
    variables = net_flags.load_variables(net, options.weights, options.strict_weights)
    with ExitStack() as stack:
        if options.image is not None:
            batches, batch_index, row_index = iter([_read_image_batch(net, options)]), 0, 0
        else:
            batch_size = _find_batch_size(net, options)
            batch_index, row_index = divmod(options.example, batch_size)
            loader = batches = Loader(net.graph)
            stack.callback(loader.close)
            if loader.num_examples is not None and options.example >= loader.num_examples:
                message = f"the net's data has examples 0 to {loader.num_examples - 1}"
                raise DataError(Problem(f"--example={options.example}: {message}", options.model))
        feature_batches = extract_features(net, variables, [options.blob], batches)
        values = np.atleast_1d(np.asarray(next(islice(feature_batches, batch_index, None))[options.blob], np.float32))
    if row_index >= len(values):
        raise DataError(Problem(f"blob '{options.blob}' of shape {values.shape} has no row {row_index}", options.model))
    image_flags.write_tiles(make_feature_maps(values[row_index]), options, f"{options.blob} {values[row_index].shape}")


def _find_batch_size(net: Net, options: argparse.Namespace) -> int:
    from ..core.layers import CallerInput

    if not net.graph.input_names or any(
        isinstance(layer.type.implementation, CallerInput) for layer in net.graph.layers
    ):
        raise GraphError(Problem("the net has no data layer to take an example from; give --image", options.model))
    return int((net.graph.blobs[net.graph.input_names[0]].shape or (1,))[0])


def _read_image_batch(net: Net, options: argparse.Namespace) -> dict[str, np.ndarray]:
    """Return the input arrays for `--image`: the first input with 1 or 3 channels is the image, all others are zero."""
    import numpy as np

    from ..pycaffe import io

    shapes = {name: net.graph.blobs[name].shape for name in net.graph.input_names}
    name = next((name for name, shape in shapes.items() if len(shape) == 4 and shape[1] in (1, 3)), None)
    if name is None:
        message = f"no input takes images, (N, 1, H, W) or (N, 3, H, W); inputs: {shapes}"
        raise GraphError(Problem(message, options.model))
    channels, *dims = shapes[name][1:]
    settings = image_flags.get_preprocessing_settings(options)
    if channels != len(settings["channel_swap"]):
        settings["channel_swap"] = None
    image_flags.set_limits(options)
    with image_flags.convert_value_errors(options.model):
        transformer = io.make_transformer(name, shapes[name], **settings)
        image = io.load_image(options.image, color=channels != 1)
        resized = io.resize_image(image, options.images_dim or dims)
        (cropped,) = io.center_crops(resized[None], dims)
        network_input = transformer.preprocess(name, cropped)
        batch = {input_name: np.zeros(shape, np.float32) for input_name, shape in shapes.items()}
        batch[name][...] = network_input
    return batch
