"""Writes SSD detectors to configs/: ssd300 (VGG), mobilenet_ssd, face_detector, and the small ssd_shapes.

The first three have the names, shapes and settings that their authors published, with Input layers, so that published
weights load. The last has a solver, trains in minutes, and is for the pictures of `caffejax demo shapes`. Run it from
anywhere; it takes no flags.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from config_writer import MSRA, PARAM_SPECS, XAVIER, PrototxtBuilder, name_with_part, write_config

from caffejax.cli.demo_pictures import OBJECT_NAMES, SIZE

VARIANCE = "variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2"


@dataclass(frozen=True)
class Source:
    """A map that boxes are predicted from.

    Attributes:
        blob: the map.
        sizes: the side of the smallest square, in pixels, and of the next larger one if there is one.
        ratios: aspect ratios besides 1; each also the other way round.
        step: pixels from one place to the next; as the map's size says unless given.
        name: the beginning of the predictions' names, if not the map's.
    """

    blob: str
    sizes: tuple[int, ...]
    ratios: tuple[int, ...] = ()
    step: int | None = None
    name: str = ""

    @property
    def num_boxes(self) -> int:
        """How many boxes there are at each place."""
        return len(self.sizes) + 2 * len(self.ratios)

    @property
    def prior_box_param(self) -> str:
        """The PriorBox layer's."""
        sizes = " ".join(f"{name}: {size}" for name, size in zip(("min_size", "max_size"), self.sizes, strict=False))
        ratios = "".join(f" aspect_ratio: {r}" for r in self.ratios)
        step = f" step: {self.step}" if self.step else ""
        return f"prior_box_param {{ {sizes}{ratios} flip: true clip: false{step} {VARIANCE} }}"


class Detector(PrototxtBuilder):
    """An SSD net being written."""

    def add_norm(self, x: str, top: str = "conv4_3_norm") -> str:
        """Add the scaled norm that the finest map gets."""
        scale = 'scale_filler { type: "constant" value: 20 }'
        settings = f"norm_param {{ across_spatial: false channel_shared: false {scale} }}"
        return self.add("Normalize", top, [x], settings)

    def add_predictions(self, classes: int, sources: Sequence[Source], kernel: int) -> list[str]:
        """Add what predicts from maps; return the blobs of locations, confidences and prior boxes."""
        tops_by_kind: list[list[str]] = [[], [], []]
        settings = "pad: 1" if kernel == 3 else ""
        for source in sources:
            prefix = source.name or source.blob
            for prediction_kind, num_values, tops in ("loc", 4, tops_by_kind[0]), ("conf", classes, tops_by_kind[1]):
                name = f"{prefix}_mbox_{prediction_kind}"
                x = self.conv(name, source.blob, source.num_boxes * num_values, kernel, settings)
                order = "permute_param { order: 0 order: 2 order: 3 order: 1 }"
                x = self.add("Permute", f"{name}_perm", [x], order)
                tops.append(self.add("Flatten", f"{name}_flat", [x], "flatten_param { axis: 1 }"))
            boxes = f"{prefix}_mbox_priorbox"
            tops_by_kind[2].append(self.add("PriorBox", boxes, [source.blob, "data"], source.prior_box_param))
        groups = zip(("loc", "conf", "priorbox"), tops_by_kind, (1, 1, 2), strict=True)
        return [self.add("Concat", f"mbox_{n}", tops, f"concat_param {{ axis: {axis} }}") for n, tops, axis in groups]

    def add_multibox_loss(self, classes: int, prediction_blobs: list[str]) -> None:
        """Add the loss, in TRAIN."""
        mining = "mining_type: MAX_NEGATIVE neg_pos_ratio: 3 neg_overlap: 0.5"
        loss_settings = f"num_classes: {classes} overlap_threshold: 0.5 code_type: CENTER_SIZE {mining}"
        down = "propagate_down: true propagate_down: true propagate_down: false propagate_down: false"
        settings = f"{down} multibox_loss_param {{ {loss_settings} }} loss_param {{ normalization: VALID }}"
        self.add("MultiBoxLoss", "mbox_loss", [*prediction_blobs, "label"], settings, phase="TRAIN")

    def add_detections(self, classes: int, prediction_blobs: list[str], keep_settings: str, phase: str = "TEST") -> str:
        """Add what makes boxes with labels and scores of predictions, in TEST unless told."""
        locations, x, priors = prediction_blobs
        rows = f"reshape_param {{ shape {{ dim: 0 dim: -1 dim: {classes} }} }}"
        x = self.add("Reshape", "mbox_conf_reshape", [x], rows, phase=phase)
        x = self.add("Softmax", "mbox_conf_softmax", [x], "softmax_param { axis: 2 }", phase=phase)
        x = self.add("Flatten", "mbox_conf_flatten", [x], "flatten_param { axis: 1 }", phase=phase)
        settings = (
            f"detection_output_param {{ num_classes: {classes} share_location: true background_label_id: 0 "
            f"code_type: CENTER_SIZE {keep_settings} }}"
        )
        return self.add("DetectionOutput", "detection_out", [locations, x, priors], settings, phase=phase)


def make_detector(name: str, batch: int, size: int, boxes: int) -> Detector:
    """Begin a net with Input layers."""
    return Detector(name, batch, 3, size, size, label_shape=(1, 1, boxes, 8), param_specs=PARAM_SPECS)


def vgg_sources(finest: str, suffix: str = "") -> list[Source]:
    """Return the maps of SSD300, which the nets of other backbones copy; the extra maps' names have a suffix."""
    return [
        Source(finest, (30, 60), (2,), 8),
        Source("fc7", (60, 111), (2, 3), 16),
        Source(f"conv6_2{suffix}", (111, 162), (2, 3), 32, "conv6_2"),
        Source(f"conv7_2{suffix}", (162, 213), (2, 3), 64, "conv7_2"),
        Source(f"conv8_2{suffix}", (213, 264), (2,), 100, "conv8_2"),
        Source(f"conv9_2{suffix}", (264, 315), (2,), 300, "conv9_2"),
    ]


def add_extra_maps(n: Detector, x: str, last_padding: str, width: int, suffix: str = "") -> None:
    """Add the maps from conv6_1 on; `last_padding` is the padding of the last two, which have stride 1."""
    n.relu_name = lambda x: f"{x.removesuffix(suffix)}_relu"
    narrow, wide = width, 2 * width
    strided = "pad: 1 stride: 2"
    for block, settings in zip(range(6, 10), (strided, strided, last_padding, last_padding), strict=True):
        x = n.conv_relu(f"conv{block}_1{suffix}", x, narrow, 1)
        x = n.conv_relu(f"conv{block}_2{suffix}", x, wide, 3, settings)
        narrow, wide = width // 2, width


def ssd300() -> str:
    n = make_detector("VGG_VOC0712_SSD_300x300", 8, 300, 24)
    x, pool = "data", "kernel_size: 2 stride: 2"
    for block, (width, repeats) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)), 1):
        for i in range(1, repeats + 1):
            x = n.conv_relu(f"conv{block}_{i}", x, width, 3, "pad: 1")
        if block < 5:
            x = n.pool(f"pool{block}", x, pool)
    x = n.pool("pool5", x, "kernel_size: 3 stride: 1 pad: 1")
    x = n.conv_relu("fc6", x, 1024, 3, "pad: 6 dilation: 6")
    add_extra_maps(n, n.conv_relu("fc7", x, 1024, 1), "", 256)
    keep_settings = "nms_param { nms_threshold: 0.45 top_k: 400 } keep_top_k: 200 confidence_threshold: 0.01"
    return _add_detection(n, vgg_sources(n.add_norm("conv4_3")), 3, keep_settings)


def mobilenet_ssd() -> str:
    n = make_detector("MobileNet-SSD", 8, 300, 24)
    n.filler, n.relu_name = MSRA, name_with_part("relu")
    n.scale_param_specs = "param { lr_mult: 1 decay_mult: 0 } param { lr_mult: 2 decay_mult: 0 }"
    x, width = n.conv_norm("conv0", "data", 32, 3, "pad: 1 stride: 2"), 32
    outputs = (64, 128, 128, 256, 256, *(512,) * 6, 1024, 1024)
    for layer_number, (out, stride) in enumerate(zip(outputs, (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1), strict=True), 1):
        settings = f"pad: 1 group: {width}" + (" stride: 2" if stride == 2 else "")
        x = n.conv_norm(f"conv{layer_number}", n.conv_norm(f"conv{layer_number}/dw", x, width, 3, settings), out, 1)
        width = out
    for block, (narrow, wide) in enumerate(((256, 512), (128, 256), (128, 256), (64, 128)), 14):
        x = n.conv_norm(f"conv{block}_2", n.conv_norm(f"conv{block}_1", x, narrow, 1), wide, 3, "pad: 1 stride: 2")
    sources = [
        Source("conv11", (60,), (2,)),
        Source("conv13", (105, 150), (2, 3)),
        Source("conv14_2", (150, 195), (2, 3)),
        Source("conv15_2", (195, 240), (2, 3)),
        Source("conv16_2", (240, 285), (2, 3)),
        Source("conv17_2", (285, 300), (2, 3)),
    ]
    keep_settings = "nms_param { nms_threshold: 0.45 top_k: 100 } keep_top_k: 100 confidence_threshold: 0.25"
    return _add_detection(n, sources, 1, keep_settings)


def face_detector() -> str:
    """OpenCV's: SSD on a thin ResNet-10, whose blocks normalize their inputs; its data are normalized first."""
    n = make_detector("res10_300x300_ssd", 8, 300, 24)
    n.filler, n.scale_param_specs = MSRA, "param { lr_mult: 1 decay_mult: 1 } param { lr_mult: 2 decay_mult: 1 }"

    def norm(x: str, bn: str, top: str, *, relu: bool = True) -> str:
        """Add BatchNorm and Scale, whose names differ in that word, and a ReLU."""
        n.bn_name, n.scale_name = (lambda x: bn), lambda x: bn.replace("bn", "scale")
        n.relu_name, n.norm_top = (lambda x: bn.removesuffix("_h").replace("bn", "relu")), lambda x: top
        return n.norm(x, relu=relu)

    x = n.conv("conv1_h", norm("data", "data_bn", "data_bn", relu=False), 32, 7, "pad: 3 stride: 2")
    x = n.pool("conv1_pool", norm(x, "conv1_bn_h", x))
    for width, narrow, stride, h in (64, 32, 1, "_h"), (128, 128, 2, ""), (256, 256, 2, ""), (512, 128, 1, "_h"):
        name, side = f"layer_{width}_1", x
        settings, out = f"stride: {stride}" if stride > 1 else "", {64: 32, 512: 256}.get(width, width)
        second = "pad: 2 dilation: 2" if width == 512 else "pad: 1"
        if width > 64:  # the suffix of the name tells which layers have half of ResNet-10's channels
            suffix = "_h" if width == 128 else ""
            x = norm(x, f"{name}_bn1{suffix}", f"{name}_bn1{suffix}")
        first = "_h" if width == 128 else h
        y = n.conv(f"{name}_conv1{first}", x, narrow, 3, f"pad: 1 {settings}", bias=False)
        y = n.conv(f"{name}_conv2{h}", norm(y, f"{name}_bn2{h}", y), out, 3, second, bias=False)
        if width > 64:
            side = n.conv(f"{name}_conv_expand{first}", x, out, 1, settings, bias=False)
        x = n.add("Eltwise", f"{name}_sum", [y, side])
    x = norm(x, "last_bn_h", x, relu=False)
    x = n.add("ReLU", "fc7", [x], name="last_relu")
    n.filler = XAVIER
    add_extra_maps(n, x, "pad: 1", 128, "_h")
    keep_settings = "nms_param { nms_threshold: 0.45 top_k: 400 } keep_top_k: 200 confidence_threshold: 0.2 clip: true"
    return _add_detection(n, vgg_sources(n.add_norm("layer_256_1_bn1"), "_h"), 3, keep_settings, classes=2)


def _add_detection(n: Detector, sources: Sequence[Source], kernel: int, keep_settings: str, classes: int = 21) -> str:
    """End a net with predictions of boxes, for the classes of VOC and the background unless told."""
    prediction_blobs = n.add_predictions(classes, sources, kernel)
    n.add_multibox_loss(classes, prediction_blobs)
    n.add_detections(classes, prediction_blobs, keep_settings)
    return n.text()


KEEP = "nms_param { nms_threshold: 0.45 top_k: 100 } keep_top_k: 50 confidence_threshold: 0.05"
SHAPE_CLASSES = len(OBJECT_NAMES["shapes"]) + 1  # and the background


def add_shapes_predictions(n: Detector) -> list[str]:
    n.filler, n.param_specs = MSRA, PARAM_SPECS
    x, pool = "data", "kernel_size: 2 stride: 2"
    for block, width in enumerate((16, 32, 64), 1):
        x = n.pool(f"pool{block}", n.conv_relu(f"conv{block}", x, width, 3, "pad: 1"), pool)
    fine = n.conv_relu("conv4_2", n.conv_relu("conv4_1", x, 64, 3, "pad: 1"), 64, 3, "pad: 1")
    x = n.conv_relu("conv5", fine, 96, 3, "pad: 1 stride: 2")
    n.conv_relu("conv6_2", n.conv_relu("conv6_1", x, 48, 1), 96, 3, "pad: 1 stride: 2")
    sources = [
        Source(n.add_norm(fine, f"{fine}_norm"), (14, 26), step=8),
        Source("conv5", (26, 40), step=16),
        Source("conv6_2", (40, 56), step=32),
    ]
    return n.add_predictions(SHAPE_CLASSES, sources, 3)


def add_shapes_source(n: Detector, part: str, batch: int) -> None:
    """Add the data layer of a part."""
    sampler = "sampler { min_scale: 0.5 max_scale: 1 min_aspect_ratio: 0.8 max_aspect_ratio: 1.25 }"
    constraint = "sample_constraint { min_jaccard_overlap: 0.7 }"
    samplers = f"batch_sampler {{ }} batch_sampler {{ {sampler} {constraint} max_sample: 1 max_trials: 30 }}"
    resize = f"resize_param {{ resize_mode: WARP height: {SIZE} width: {SIZE} interp_mode: LINEAR }}"
    mirror = "mirror: true " if part == "train" else ""
    settings = [
        'top: "label"',
        f"transform_param {{ mean_value: 128 scale: 0.015625 {mirror}{resize} }}",
        f'data_param {{ source: "shapes_{part}_lmdb" batch_size: {batch} backend: LMDB }}',
        *([f"annotated_data_param {{ {samplers} }}"] if part == "train" else []),
    ]
    n.add("AnnotatedData", "data", [], " ".join(settings), phase=part.upper())


def shapes_train_test() -> str:
    n = Detector("ssd_shapes")
    add_shapes_source(n, "train", 16)
    add_shapes_source(n, "test", 25)
    prediction_blobs = add_shapes_predictions(n)
    n.add_multibox_loss(SHAPE_CLASSES, prediction_blobs)
    detection_blob = n.add_detections(SHAPE_CLASSES, prediction_blobs, KEEP)
    evaluate = f"detection_evaluate_param {{ num_classes: {SHAPE_CLASSES} overlap_threshold: 0.5 }}"
    n.add("DetectionEvaluate", "detection_eval", [detection_blob, "label"], evaluate, phase="TEST")
    return n.text()


def shapes_deploy() -> str:
    n = Detector("ssd_shapes")
    n.input("data", 1, 3, SIZE, SIZE)
    n.add_detections(SHAPE_CLASSES, add_shapes_predictions(n), KEEP, phase="")
    return n.text()


SHAPES_SOLVER = """net: "train_test.prototxt"
type: "Adam"
base_lr: 0.001
momentum: 0.9
momentum2: 0.999
weight_decay: 0.0005
lr_policy: "multistep"
gamma: 0.2
stepvalue: 500
stepvalue: 700
max_iter: 800
display: 100
average_loss: 20
test_iter: 6
test_interval: 400
test_initialization: false
eval_type: "detection"
ap_version: "MaxIntegral"
show_per_class_result: true
snapshot_prefix: "snapshots/ssd_shapes"
random_seed: 1
"""

if __name__ == "__main__":
    write_config("ssd300", ssd300())
    write_config("mobilenet_ssd", mobilenet_ssd())
    write_config("face_detector", face_detector())
    for file, text in (
        ("train_test", shapes_train_test()),
        ("deploy", shapes_deploy()),
        ("solver", SHAPES_SOLVER),
    ):
        write_config("ssd_shapes", text, file)
