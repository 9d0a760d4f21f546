"""The ImageLabelmapData layer of HED: images with maps of edges, from a list."""

from __future__ import annotations

import numpy as np

from ..layers.context import Site
from ..layers.registry import register
from ..layers.source import Look, Tops
from ..layers.types import Facts, LayerType, Signature
from .opencv import cv2
from .order import check_list_param
from .pipeline import Batches
from .reads import prefetch_depth, reads_batches
from .segmentation.batches import MapBatches
from .segmentation.examples import Reading

_KNOWN = {"source", "batch_size", "rand_skip", "shuffle", "new_height", "new_width", "is_color", "root_folder"}


def look_at_image_labelmap_data(site: Site) -> Look:
    """Look at the first image of an ImageLabelmapData layer, and for all files of its list."""
    check_list_param(site.layer.image_data_param, "image_data_param", _KNOWN)
    return _batches(site).look(len(site.layer.top))


def open_image_labelmap_data(site: Site, tops: Tops) -> Batches:
    """Open the images and maps that an ImageLabelmapData layer's list names, cropped and mirrored alike.

    The second top is 1 where the map has a grey level of 128 or more, else 0.
    """
    return _batches(site, tops)


def _batches(site: Site, tops: Tops = ()) -> MapBatches:
    reading = Reading("pixels", shrink=cv2.INTER_LINEAR, change=_edges)
    return MapBatches(site, site.layer.image_data_param, reading, 0, tops)


def _edges(grey: np.ndarray) -> np.ndarray:
    return (grey >= 128).astype(np.uint8)  # as OpenCV rounds bytes divided by 255


register(
    LayerType(
        Signature("ImageLabelmapData", bottoms=0, tops=2, param="image_data_param"),
        reads_batches(look_at_image_labelmap_data, open_image_labelmap_data, prefetch_depth),
        facts=Facts(origin="HED", restrictions="With a crop, the mean is mean_value."),
    )
)
