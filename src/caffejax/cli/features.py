"""Draw a blob of a net as a picture with a tile per channel, for an image or for an example from the net's data layer.

Images are preprocessed as in `caffejax classify --center_only`, with the same flags.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from itertools import islice
from typing import TYPE_CHECKING

from ..errors import DataError, GraphError, Problem
from . import flags, image_flags, net_flags

if TYPE_CHECKING:
    import numpy as np

    from ..net import Net

HELP = "draw a blob of a net for an image"
EXAMPLE = "caffejax features deploy.prototxt --weights=net.caffemodel --image=cat.jpg --blob=conv1 --out=conv1.png"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    image_flags.add_tile_flags(parser)
    flags.add(parser, "blob", "the blob to draw", required=True)
    flags.add(parser, "image", "the image (default: an example of the net's data)", metavar="FILE")
    example = "the number of the example of the net's data, counted from 0"
    flags.add(parser, "example", example, type=flags.count, default=0, metavar="N")
    flags.add(
        parser,
        "images_dim",
        "height and width to resize to before cropping (default: the input's)",
        type=image_flags.numbers,
        metavar="H,W",
    )
    image_flags.add_preprocessing_flags(parser, raw_scale=255.0, channel_swap=(2, 1, 0))


def run(options: argparse.Namespace) -> None:
    """Draw the blob."""
    import numpy as np

    from ..data.loader import Loader
    from ..debugging import features
    from ..debugging.visualize import feature_maps
    from ..execution.validation import known_names

    image_flags.check_image(options.out)
    flags.check_out(options.out, options.image)
    net = net_flags.net_of(options)
    known_names(net.graph, "--blob", [options.blob])
    variables = net_flags.variables_of(net, options.weights, options.strict_weights)
    with ExitStack() as stack:
        if options.image is not None:
            batches, number, row = iter([_batch(net, options)]), 0, 0
        else:
            size = _batch_size(net, options)
            number, row = divmod(options.example, size)
            loader = batches = Loader(net.graph)
            stack.callback(loader.close)
            if loader.examples is not None and options.example >= loader.examples:
                there = f"the net's data has {loader.examples} examples, 0 to {loader.examples - 1}"
                raise DataError(Problem(f"--example={options.example}: {there}", options.model))
        computed = features(net, variables, [options.blob], batches)
        values = np.atleast_1d(np.asarray(next(islice(computed, number, None))[options.blob], np.float32))
    if row >= len(values):
        raise DataError(Problem(f"blob '{options.blob}' of shape {values.shape} has no row {row}", options.model))
    image_flags.write_tiles(feature_maps(values[row]), options, f"{options.blob} {values[row].shape}")


def _batch_size(net: Net, options: argparse.Namespace) -> int:
    """Return the batch size of the net's data layer."""
    from ..layers import Fed

    if not net.graph.input_names or any(isinstance(layer.type.implementation, Fed) for layer in net.graph.layers):
        raise GraphError(Problem("the net has no data layer to take an example from; give --image", options.model))
    return int((net.graph.blobs[net.graph.input_names[0]].shape or (1,))[0])


def _batch(net: Net, options: argparse.Namespace) -> dict[str, np.ndarray]:
    """Return a batch with one example: the image for the first input with 1 or 3 channels, zeros for other inputs."""
    import numpy as np

    from ..pycaffe import io

    shapes = {name: net.graph.blobs[name].shape for name in net.graph.input_names}
    name = next((name for name, shape in shapes.items() if len(shape) == 4 and shape[1] in (1, 3)), None)
    if name is None:
        what = f"no input takes images, (N, 1, H, W) or (N, 3, H, W); inputs: {shapes}"
        raise GraphError(Problem(what, options.model))
    channels, *dims = shapes[name][1:]
    settings = image_flags.settings(options)
    if channels != len(settings["channel_swap"]):
        settings["channel_swap"] = None
    image_flags.set_limits(options)
    with image_flags.refusals(options.model):
        transformer = io.transformer_of(name, shapes[name], **settings)
        image = io.load_image(options.image, color=channels != 1)
        resized = io.resize_image(image, options.images_dim or dims)
        (cropped,) = io.center_crops(resized[None], dims)
        prepared = transformer.preprocess(name, cropped)
        batch = {other: np.zeros(shape, np.float32) for other, shape in shapes.items()}
        batch[name][...] = prepared
    return batch
