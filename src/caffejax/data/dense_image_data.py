"""The DenseImageData layer of SegNet: images with label images, from a list."""

from __future__ import annotations

from dataclasses import replace

from ..errors import DataError
from ..layers.context import Site
from ..layers.registry import register
from ..layers.source import Look, Tops
from ..layers.types import Facts, LayerType, Signature
from .order import check_list_param
from .pipeline import Batches
from .reads import prefetch_depth, reads_batches
from .segmentation.batches import MapBatches
from .segmentation.examples import Reading

# mean_file is what old files say and the fork ignores here
_KNOWN = {"source", "batch_size", "rand_skip", "shuffle", "new_height", "new_width", "is_color", "root_folder"} | {
    *("mean_file", "mirror", "crop_width", "crop_height"),
}


def look_at_dense_image_data(site: Site) -> Look:
    """Look at the first image of a DenseImageData layer, and for all files of its list."""
    check_list_param(site.layer.dense_image_data_param, "dense_image_data_param", _KNOWN)
    return _batches(site).look(len(site.layer.top))


def open_dense_image_data(site: Site, tops: Tops) -> Batches:
    """Open the images and label images that a DenseImageData layer's list names, `image labels` on each line.

    Both are cropped and mirrored alike, where the fork's own layer refuses to.
    """
    return _batches(site, tops)


def _batches(site: Site, tops: Tops = ()) -> MapBatches:
    param = site.layer.dense_image_data_param
    layer = type(site.layer)()
    layer.CopyFrom(site.layer)
    transform = layer.transform_param
    transform.mirror |= param.mirror
    if param.crop_height or param.crop_width:
        if transform.crop_size or transform.crop_h or transform.crop_w:
            raise DataError("dense_image_data_param and transform_param both have a crop; keep one of them")
        transform.crop_h, transform.crop_w = param.crop_height, param.crop_width
    return MapBatches(replace(site, layer=layer), param, Reading("pixels"), 255, tops)


register(
    LayerType(
        Signature("DenseImageData", bottoms=0, tops=2, param="dense_image_data_param"),
        reads_batches(look_at_dense_image_data, open_dense_image_data, prefetch_depth),
        facts=Facts(
            origin="SegNet",
            restrictions="With a crop, the mean is mean_value; what is smaller than the crop gets label 255 around it.",
        ),
    )
)
