"""Draw the weights of a convolution as a picture: one tile per filter, from black (lowest) to white (highest value)."""

from __future__ import annotations

import argparse

from . import flags, image_flags, net_flags

HELP = "draw a layer's filters"
EXAMPLE = "caffejax filters deploy.prototxt --weights=net.caffemodel --out=conv1.png"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    image_flags.add_tile_flags(parser)
    flags.add(parser, "layer", "the layer (default: the first with filters larger than 1 x 1)")
    flags.add_switch(parser, "rgb", "the three channels are red, green, blue (default: blue first, as in Caffe)")


def run(options: argparse.Namespace) -> None:
    """Draw the filters."""
    import numpy as np

    from ..debugging.visualize import filter_maps, filter_params, first_filters
    from ..errors import GraphError, Problem, did_you_mean

    image_flags.check_image(options.out)
    net = net_flags.net_of(options)
    by_layer = filter_params(net.graph)
    filters = by_layer.get(options.layer) if options.layer else first_filters(net.graph)
    if filters is None:
        message = "no layer has filters larger than 1 x 1"
        if options.layer:
            message = f"no layer '{options.layer}' with filters (weights with four axes)"
            message += did_you_mean(options.layer, by_layer)
        raise GraphError(Problem(f"{message}; layers with filters: {', '.join(by_layer) or 'none'}", options.model))
    params = net_flags.variables_of(net, options.weights, options.strict_weights).params
    weights = np.asarray(params[filters.owner.layer][filters.owner.index])
    image_flags.write_tiles(filter_maps(weights, rgb=options.rgb), options, f"{filters.slot.layer} {weights.shape}")
