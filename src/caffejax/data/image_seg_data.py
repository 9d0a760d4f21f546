"""The ImageSegData layer of DeepLab and PSPNet: images with label images, from a list."""

from __future__ import annotations

from ..layers.context import Site
from ..layers.registry import register
from ..layers.source import Look, Tops
from ..layers.types import Facts, LayerType, Signature
from ..schema.caffe_pb2 import ImageDataParameter
from .order import check_list_param
from .pipeline import Batches
from .reads import prefetch_depth, reads_batches
from .segmentation.batches import MapBatches
from .segmentation.examples import Reading

_OF_FORKS = ("label_type", "ignore_label")
_KNOWN = {
    *("source", "batch_size", "rand_skip", "shuffle", "new_height", "new_width", "is_color", "root_folder"),
    *_OF_FORKS,
}


def look_at_image_seg_data(site: Site) -> Look:
    """Look at the first image of an ImageSegData layer, and for all files of its list."""
    check_list_param(site.layer.image_data_param, "image_data_param", _KNOWN)
    return _batches(site).look(len(site.layer.top))


def open_image_seg_data(site: Site, tops: Tops) -> Batches:
    """Open the images and label images that an ImageSegData layer's list names, cropped and mirrored alike.

    What is smaller than the crop is padded with the mean and `ignore_label`. The third top holds each image's size.
    """
    return _batches(site, tops)


def _batches(site: Site, tops: Tops = ()) -> MapBatches:
    param = site.layer.image_data_param
    kinds = {ImageDataParameter.PIXEL: Reading("pixels"), ImageDataParameter.IMAGE: Reading("image")}
    reading = kinds.get(param.label_type, Reading("none", fill=param.ignore_label))
    return MapBatches(site, param, reading, param.ignore_label, tops)


register(
    LayerType(
        Signature("ImageSegData", bottoms=0, tops=(1, 3), param="image_data_param", fork_settings=_OF_FORKS),
        reads_batches(look_at_image_seg_data, open_image_seg_data, prefetch_depth),
        facts=Facts(
            origin="DeepLab",
            restrictions="Label images are resized to the nearest pixel. With a crop, the mean is mean_value.",
        ),
    )
)
