"""Flags that put what makes inputs of images into what is exported."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from . import flags, images

if TYPE_CHECKING:
    from ..export import Preprocessing, Subject
    from ..net import Net

_CLASSIFY, _TRANSFORM = "classify", "transform_param"
_MEAN = "mean_file", "raw_scale", "input_scale"  # a transform_param has its own


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add `--preprocess` and the flags that go with it."""
    what = (
        "take images, uint8 (N, H, W, C) in R, G, B: make inputs of them as caffejax classify does by the flags below, "
        "or as the net's data layer does by its transform_param"
    )
    flags.add(parser, "preprocess", what, choices=(_CLASSIFY, _TRANSFORM))
    dims = "height and width of these images, of which the middle is taken; the input's unless given"
    flags.add(parser, "images_dim", help=dims, type=images.numbers, metavar="H,W")
    images.add_preprocessing_flags(parser)


def problems(options: argparse.Namespace) -> Iterator[str]:
    """Yield which of the flags do not go together."""
    own = [name for name in ("images_dim", "channel_swap", *_MEAN) if getattr(options, name) is not None]
    for name in own:
        if options.preprocess is None:
            yield f"--{name} needs --preprocess={_CLASSIFY}"
        elif options.preprocess == _TRANSFORM and name in _MEAN:
            yield f"--{name} goes with --preprocess={_CLASSIFY}: a transform_param has its own"
    if options.images_dim is not None and (len(options.images_dim) != 2 or min(options.images_dim) < 1):
        yield "--images_dim must be a height and a width, such as 256,256"


def preprocessing_of(net: Net, subject: Subject, options: argparse.Namespace) -> Preprocessing | None:
    """Return what the flags ask for; None if they ask for nothing.

    Args:
        net: the whole net.
        subject: what is exported of it.
        options: the flags.
    """
    from ..export import image_input, of_data_layer

    if options.preprocess is None:
        return None
    if options.preprocess == _TRANSFORM:
        return of_data_layer(net, subject, options.images_dim, options.channel_swap)
    with images.refusals(options.model):
        return _as_classify(image_input(subject), subject, options)


def _as_classify(blob: str, subject: Subject, options: argparse.Namespace) -> Preprocessing:
    import numpy as np

    from ..export import Preprocessing, colour_order
    from ..pycaffe.io import Transformer

    given, (_, channels, h, w) = images.settings(options), subject.inputs[blob].shape
    order = given["channel_swap"] or colour_order(channels)
    transformer = Transformer({blob: subject.inputs[blob].shape})
    transformer.set_channel_swap(blob, order)
    transformer.set_mean(blob, np.zeros(channels) if given["mean"] is None else given["mean"])
    height, width = options.images_dim or (h, w)
    raw_scale, scale = given["raw_scale"], given["input_scale"]
    factor = 1.0 if raw_scale is None else raw_scale / 255
    mean = transformer.mean[blob]
    return Preprocessing(blob, (height, width, channels), (h, w), order, factor, mean, 1.0 if scale is None else scale)
