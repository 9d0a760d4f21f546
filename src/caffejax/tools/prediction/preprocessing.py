"""Conversion of images to a net's input: mean, scale and channel order, as published or as in training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...base.errors import CaffejaxError, DataError, Problem
from ...base.glog import collect_warnings, log
from ...base.paths import find_file, read_bytes
from ...core.checkpoints.array_files import DAMAGE_ERRORS, parse_npy
from ...core.schema import read_net
from ...core.schema.blob_proto import read_blob_proto
from ...core.schema.caffe_pb2 import TRAIN, LayerParameter, NetParameter, TransformationParameter


class PublishedPreprocessing(NamedTuple):
    """The preprocessing of a published net, for pixels from 0 to 255.

    Attributes:
        mean: the mean that is subtracted from each channel, in the net's channel order.
        scale: the factor that is applied after the subtraction.
        channels: the net's channel order, "BGR" or "RGB", or "gray".
        layer: the name of a layer that the net must have. The name of a net alone identifies nothing: nets with other
            layers or classes, and another mean, keep the name of the net that they were made from.
        num_output: the number of outputs of that layer, or None if any.
        first_layer: the name of the first layer that has a bottom, or None if any. Nets that begin with a BatchNorm of
            the pixels take them without a mean.
        needs_name: whether the net must have the published name, too, because other nets have such a layer.
    """

    mean: tuple[float, ...]
    scale: float = 1.0
    channels: str = "BGR"
    layer: str = ""
    num_output: int | None = None
    first_layer: str | None = None
    needs_name: bool = True

    def has_layers_of(self, net: NetParameter) -> bool:
        """Return whether a net has the layers."""
        first_layer = next((layer.name for layer in net.layer if layer.bottom), None)
        return self.first_layer in (None, first_layer) and any(
            layer.name == self.layer and self.num_output in (None, _get_num_output(layer)) for layer in net.layer
        )


def _get_num_output(layer: LayerParameter) -> int:
    return max(layer.convolution_param.num_output, layer.inner_product_param.num_output)


_IMAGENET = PublishedPreprocessing((104, 117, 123), num_output=1000)
_SE_NET = _IMAGENET._replace(layer="classifier", first_layer="conv1/7x7_s2")
_VGG_MEAN = (103.939, 116.779, 123.68)
_VGG = PublishedPreprocessing(_VGG_MEAN, layer="fc8", num_output=1000, first_layer="conv1_1")
_RESNET = PublishedPreprocessing((103.06, 115.9, 123.15), layer="fc1000", num_output=1000, first_layer="conv1")
_SHICAI = PublishedPreprocessing((103.94, 116.78, 123.68), 0.017, num_output=1000, first_layer="conv1")
_MOBILENET_SSD = PublishedPreprocessing((127.5, 127.5, 127.5), 0.007843)

_SE_NETS = ("SE-BN-Inception", "SE-ResNet-50", "SE-ResNet-101", "SE-ResNet-152")
_SE_RESNEXTS = tuple(f"SE-ResNeXt-{layers} (32 x 4d)" for layers in (50, 101))


def _identify_by_layer(mean: tuple[float, ...], scale: float = 1, *, layer: str) -> PublishedPreprocessing:
    """Return an entry for a net that a layer's name identifies, also in files with no or another name of the net."""
    return PublishedPreprocessing(mean, scale, layer=layer, needs_name=False)


# By net name; configs/README.md lists the authors of most nets. The first entry that identifies a net is used.
PUBLISHED_PREPROCESSING: Mapping[str, PublishedPreprocessing] = {
    "LeNet": PublishedPreprocessing((0,), 1 / 256, "gray", "ip2", 10, "conv1"),
    "CIFAR10_full": PublishedPreprocessing((125.3, 123, 113.9), 1, "RGB", "ip1", 10, "conv1"),
    **dict.fromkeys(("AlexNet", "CaffeNet"), _IMAGENET._replace(layer="fc8", first_layer="conv1")),
    "GoogleNet": _IMAGENET._replace(layer="loss3/classifier", first_layer="conv1/7x7_s2"),
    **dict.fromkeys((*_SE_NETS, *_SE_RESNEXTS), _SE_NET),
    "SENet": _SE_NET._replace(first_layer="conv1_1/3x3_s2"),
    **dict.fromkeys(("VGG_ILSVRC_16_layers", "VGG_ILSVRC_19_layers"), _VGG),
    "SqueezeNet_v1.1": _identify_by_layer(_IMAGENET.mean, layer="fire2/squeeze1x1"),
    **dict.fromkeys(("ResNet-50", "ResNet-101", "ResNet-152"), _RESNET),
    **dict.fromkeys(("MOBILENET", "MOBILENET_V2"), _SHICAI._replace(layer="fc7")),
    **dict.fromkeys((f"DENSENET_{n}" for n in (121, 161, 169, 201)), _SHICAI._replace(layer="fc6")),
    "OpenPose_COCO": _identify_by_layer((128, 128, 128), 1 / 256, layer="Mconv7_stage6_L2"),
    "FCN-8s": _identify_by_layer((104.007, 116.669, 122.679), layer="score_pool3c"),
    "SegNet": _identify_by_layer((0, 0, 0), layer="conv1_1_D"),
    "PSPNet-50": _identify_by_layer(_VGG_MEAN, layer="conv5_3_pool1_conv"),
    "MobileNet-SSD": _MOBILENET_SSD._replace(layer="conv17_2_mbox_loc"),
    "MobileNetv2-SSDLite": _MOBILENET_SSD._replace(layer="layer_19_2_5_mbox_loc"),
    "res10_300x300_ssd": _identify_by_layer((104, 177, 123), layer="layer_64_1_conv1_h"),
    # also with other sizes and datasets
    "VGG_VOC0712_SSD_300x300": _identify_by_layer(_IMAGENET.mean, layer="conv4_3_norm_mbox_loc"),
}


@dataclass(frozen=True, eq=False)
class Preprocessing:
    """Preprocessing of images: resize them to the net's input, then compute (pixel - mean) * scale.

    Attributes:
        mean: float32, (C, 1, 1) or (C, h, w), in the net's channel order, for pixels from 0 to 255.
        scale: the factor.
        channels: "BGR" or "RGB", or "gray" for nets of one channel.
        source: a text that describes the source of these settings, for the log.
    """

    mean: np.ndarray
    scale: float
    channels: str
    source: str

    def __call__(self, images: Sequence[np.ndarray], size: tuple[int, int]) -> np.ndarray:
        """Return the net's input, float32 (N, C, h, w), for N images.

        An image is uint8, (H, W, 3) with channels B, G, R, or (H, W). `size` is (h, w).
        """
        import cv2

        height, width = size
        resized = [cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR) for image in images]
        planes = np.stack([np.atleast_3d(image).transpose(2, 0, 1) for image in resized]).astype(np.float32)
        if self.channels == "RGB":
            planes = planes[:, ::-1]
        return np.ascontiguousarray((planes - self.mean) * np.float32(self.scale))

    def __str__(self) -> str:
        channel_means = ", ".join(f"{value:g}" for value in self.mean.mean(axis=(1, 2)))
        image_note = " (of an image)" if self.mean.shape[1:] != (1, 1) else ""
        return f"channels {self.channels}, mean {channel_means}{image_note}, scale {self.scale:g}; from {self.source}"


def find_preprocessing(
    net: NetParameter,
    file: Path,
    shape: tuple[int, int, int],
    *,
    mean: str | None = None,
    scale: float | None = None,
    channels: str | None = None,
) -> Preprocessing:
    """Return the preprocessing settings of a net.

    They come from the arguments, otherwise from the transform_param of a data layer of the net or of a train net in its
    folder, otherwise from `PUBLISHED_PREPROCESSING`, otherwise from Caffe's defaults: no mean, scale 1, and B, G, R.

    Args:
        net: the net.
        file: the net's file.
        shape: (C, h, w) of the input.
        mean: numbers separated by commas, one for all channels or one for each; or a .binaryproto or .npy file. A mean
            image with a different size than the input is replaced by its average for each channel.
        scale: the factor that is applied after the subtraction.
        channels: "BGR" or "RGB".

    Raises:
        DataError: if the mean cannot be read, does not fit the channels of the input, or is not finite.
    """
    default_channels = "gray" if shape[0] == 1 else "BGR"
    settings = Preprocessing(np.zeros((1, 1, 1), np.float32), 1.0, default_channels, "Caffe's defaults")
    published_entry, train_transform = _find_published_preprocessing(net), next(_find_transforms(net, file), None)
    if train_transform is not None and (mean is not None or published_entry is None or _has_mean(*train_transform)):
        param, source = train_transform
        mean_array = settings.mean if mean is not None else _read_transform_mean(param, source, shape)
        settings = Preprocessing(mean_array, param.scale, default_channels, f"transform_param of {source}")
    elif published_entry is not None:
        name, entry = published_entry
        if len(entry.mean) == shape[0]:
            array = np.array(entry.mean, np.float32).reshape(-1, 1, 1)
            settings = Preprocessing(array, entry.scale, entry.channels, f"the published {name}")
    elif names := [name for name in PUBLISHED_PREPROCESSING if _has_name(net, name)]:
        reason = f"because the layers are not those of the published {names[0]}"
        settings = replace(settings, source=f"{settings.source}, {reason}")
        if mean is None:
            log.warning(
                "%s: the net has the name %s, but not the published net's layers, so its mean is unknown: give --mean",
                file,
                net.name,
            )
    flags = [f"--{k}" for k, v in (("mean", mean), ("scale", scale), ("channels", channels)) if v is not None]
    if not flags:
        return settings
    is_complete = len(flags) == (3 if shape[0] > 1 else 2)
    return Preprocessing(
        settings.mean if mean is None else _parse_mean(mean, shape),
        settings.scale if scale is None else scale,
        channels or settings.channels,
        ", ".join(flags) + ("" if is_complete else f", otherwise {settings.source}"),
    )


def _find_published_preprocessing(net: NetParameter) -> tuple[str, PublishedPreprocessing] | None:
    for name, entry in sorted(PUBLISHED_PREPROCESSING.items(), key=lambda item: item[0] != net.name):
        if (_has_name(net, name) or not entry.needs_name) and entry.has_layers_of(net):
            return name, entry
    return None


def _has_name(net: NetParameter, name: str) -> bool:
    return net.name == name or net.name.startswith(f"{name}_")


def _find_transforms(net: NetParameter, file: Path) -> Iterator[tuple[TransformationParameter, Path]]:
    """Yield the transform_params of the net, then those of train nets in its folder, each with its file.

    A train net has more than half of the net's layers by name, and no such layer has a different number of outputs.

    In each net, layers that belong only to phase TRAIN come last.
    """
    num_outputs = {layer.name: _get_num_output(layer) for layer in net.layer}
    yield from ((layer.transform_param, file) for layer in _list_transform_layers(net))
    for train_file in sorted(file.parent.glob("*train*.prototxt")):
        train_net = NetParameter()
        with collect_warnings(), suppress(CaffejaxError):  # the file is a solver, or an invalid net
            train_net = train_net if train_file == file else read_net(train_file)
        matches = [num_outputs[x.name] == _get_num_output(x) for x in train_net.layer if x.name in num_outputs]
        if 2 * len(matches) > len(num_outputs) and all(matches):  # not the train net of a net with other classes
            yield from ((layer.transform_param, train_file) for layer in _list_transform_layers(train_net))


def _list_transform_layers(net: NetParameter) -> list[LayerParameter]:
    layers = [layer for layer in net.layer if layer.HasField("transform_param")]
    return sorted(layers, key=lambda layer: any(rule.phase == TRAIN for rule in layer.include))


def _has_mean(param: TransformationParameter, file: Path) -> bool:
    """Return whether a transform_param names no mean_file, or a mean_file that exists."""
    return not param.HasField("mean_file") or find_file(param.mean_file, file.parent).exists()


def _read_transform_mean(param: TransformationParameter, file: Path, shape: tuple[int, int, int]) -> np.ndarray:
    if not param.HasField("mean_file"):
        return _broadcast_mean(np.array(list(param.mean_value) or [0], np.float32).reshape(-1, 1, 1), str(file), shape)
    if not _has_mean(param, file):
        message = f"mean_file {param.mean_file} of its transform_param does not exist; give --mean"
        raise DataError(Problem(message, str(file)))
    return _read_mean(find_file(param.mean_file, file.parent), shape)


def _parse_mean(text: str, shape: tuple[int, int, int]) -> np.ndarray:
    try:
        numbers = np.array([float(part) for part in text.split(",")], np.float32)
    except ValueError:
        return _read_mean(Path(text), shape)
    return _broadcast_mean(numbers.reshape(-1, 1, 1), "--mean", shape)


def read_npy(path: str | Path, description: str = "") -> np.ndarray:
    """Read an array of real numbers from a .npy file. No code in the file runs.

    Args:
        path: the file.
        description: a noun phrase for the file in messages, such as "the mean", or "".

    Raises:
        DataError: if the file cannot be read, or is not a .npy file of real numbers.
    """
    content = read_bytes(path, DataError, description)
    try:
        array = parse_npy(BytesIO(content))
        if array.dtype.kind not in "biuf":
            raise ValueError(f"its dtype is {array.dtype}")
    except DAMAGE_ERRORS as error:
        raise DataError(Problem(f"is not a .npy file of real numbers, or damaged: {error}", str(path))) from error
    return array


def _read_mean(path: Path, shape: tuple[int, int, int]) -> np.ndarray:
    array = read_npy(path, "the mean") if path.suffix == ".npy" else read_blob_proto(path, DataError)
    image = np.asarray(array, np.float32)
    image = image.reshape(-1, 1, 1) if image.ndim == 1 else image.reshape(image.shape[-3:])
    if image.ndim != 3 or not image.size:
        raise DataError(Problem(f"the mean has shape {np.shape(array)}, not (C,) or (C, H, W)", str(path)))
    return _broadcast_mean(image if image.shape == shape else image.mean(axis=(1, 2), keepdims=True), str(path), shape)


def _broadcast_mean(mean: np.ndarray, file: str, shape: tuple[int, int, int]) -> np.ndarray:
    if len(mean) not in (1, shape[0]):
        expected = f"1 or {shape[0]} numbers" if shape[0] > 1 else "one number"
        message = f"the mean has {len(mean)} channels, but the net's input has {shape[0]}; give --mean with {expected}"
        raise DataError(Problem(message, file))
    if not np.isfinite(mean).all():
        raise DataError(Problem("the mean contains NaN or infinity; give --mean with finite numbers", file))
    return np.broadcast_to(mean, (shape[0], *mean.shape[1:]))
