"""Writes well-known nets that classify to configs/, with the layers' names, shapes and fillers that were published.

A file of weights that the authors published loads by name. In phase TRAIN each net ends in SoftmaxWithLoss, in TEST in
the output of the authors' deploy net. Average pooling of the last map is global, equal at the published size, so that
other sizes work. `benchmarks/against_torch.py` runs these nets. Run it from anywhere; it takes no flags.
"""

from __future__ import annotations

import re
from itertools import pairwise

from config_writer import (
    MSRA,
    PARAM_SPECS,
    SCALE_PARAM_SPECS,
    XAVIER,
    PrototxtBuilder,
    format_dims,
    name_with_part,
    write_config,
)

GLOBAL = ("global_pooling: true", "AVE")
LENET_RATES = "param { lr_mult: 1 } param { lr_mult: 2 }"


def gaussian(std: float, bias: float = 0) -> str:
    """Write fillers: normally distributed weights, and a constant bias."""
    bias_filler = f' bias_filler {{ type: "constant" value: {bias} }}' if bias else ""
    return f'weight_filler {{ type: "gaussian" std: {std} }}{bias_filler}'


def lenet() -> str:
    n = PrototxtBuilder("LeNet", 64, 1, 28, 28, param_specs=LENET_RATES)
    x = n.pool("pool1", n.conv("conv1", "data", 20, 5), "kernel_size: 2 stride: 2")
    x = n.pool("pool2", n.conv("conv2", x, 50, 5), "kernel_size: 2 stride: 2")
    return n.add_loss_and_prob(n.ip("ip2", n.relu(n.ip("ip1", x, 500)), 10))


def cifar10_full() -> str:
    n = PrototxtBuilder("CIFAR10_full", 100, 3, 32, 32, param_specs=LENET_RATES)
    norm = "local_size: 3 alpha: 5e-05 norm_region: WITHIN_CHANNEL"
    n.filler = gaussian(0.0001)
    x = n.relu(n.pool("pool1", n.conv("conv1", "data", 32, 5, "pad: 2")))
    n.filler = gaussian(0.01)
    x = n.conv_relu("conv2", n.lrn("norm1", x, norm), 32, 5, "pad: 2")
    x = n.lrn("norm2", n.pool("pool2", x, method="AVE"), norm)
    n.param_specs = ""
    x = n.pool("pool3", n.conv_relu("conv3", x, 64, 5, "pad: 2"), method="AVE")
    n.param_specs = "param { lr_mult: 1 decay_mult: 250 } param { lr_mult: 2 decay_mult: 0 }"
    return n.add_loss_and_prob(n.ip("ip1", x, 10))


def alexnet(name: str = "AlexNet", bias: float = 0.1, *, pool_first: bool = False) -> str:
    """Write AlexNet, which normalizes before it pools, or CaffeNet."""
    n = PrototxtBuilder(name, 32, 3, 227, 227, param_specs=PARAM_SPECS)

    def pool_and_norm(index: int, x: str) -> str:
        if pool_first:
            return n.lrn(f"norm{index}", n.pool(f"pool{index}", x))
        return n.pool(f"pool{index}", n.lrn(f"norm{index}", x))

    n.filler = gaussian(0.01)
    x = pool_and_norm(1, n.conv_relu("conv1", "data", 96, 11, "stride: 4"))
    n.filler = gaussian(0.01, bias)
    x = pool_and_norm(2, n.conv_relu("conv2", x, 256, 5, "pad: 2 group: 2"))
    n.filler = gaussian(0.01)
    x = n.conv_relu("conv3", x, 384, 3, "pad: 1")
    n.filler = gaussian(0.01, bias)
    x = n.conv_relu("conv4", x, 384, 3, "pad: 1 group: 2")
    x = n.pool("pool5", n.conv_relu("conv5", x, 256, 3, "pad: 1 group: 2"))
    return _add_three_fully_connected(n, x, gaussian(0.005, bias))


def _add_three_fully_connected(n: PrototxtBuilder, x: str, filler: str) -> str:
    n.filler = filler
    for index in (6, 7):
        x = n.dropout(f"drop{index}", n.relu(n.ip(f"fc{index}", x, 4096)))
    n.filler = gaussian(0.01)
    return n.add_loss_and_prob(n.ip("fc8", x, 1000))


def vgg16() -> str:
    n = PrototxtBuilder("VGG_ILSVRC_16_layers", 8, 3, 224, 224, param_specs=PARAM_SPECS)
    n.filler, x = gaussian(0.01), "data"
    for block, (width, repeats) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)), 1):
        for i in range(1, repeats + 1):
            x = n.conv_relu(f"conv{block}_{i}", x, width, 3, "pad: 1")
        x = n.pool(f"pool{block}", x, "kernel_size: 2 stride: 2")
    return _add_three_fully_connected(n, x, gaussian(0.005, 0.1))


def googlenet() -> str:
    n = PrototxtBuilder("GoogleNet", 16, 3, 224, 224, param_specs=PARAM_SPECS)
    n.relu_name = lambda x: re.sub("/(.+?)(_s2)?$", r"/relu_\1", x)
    n.filler = XAVIER + ' bias_filler { type: "constant" value: 0.2 }'
    x = n.pool("pool1/3x3_s2", n.conv_relu("conv1/7x7_s2", "data", 64, 7, "pad: 3 stride: 2"))
    x = n.conv_relu("conv2/3x3_reduce", n.lrn("pool1/norm1", x), 64, 1)
    x = n.lrn("conv2/norm2", n.conv_relu("conv2/3x3", x, 192, 3, "pad: 1"))
    x = _inception(n, "3a", n.pool("pool2/3x3_s2", x), 64, 96, 128, 16, 32, 32)
    x = n.pool("pool3/3x3_s2", _inception(n, "3b", x, 128, 128, 192, 32, 96, 64))
    x = _inception(n, "4a", x, 192, 96, 208, 16, 48, 64)
    _auxiliary_loss(n, "loss1", x)
    x = _inception(n, "4b", x, 160, 112, 224, 24, 64, 64)
    x = _inception(n, "4c", x, 128, 128, 256, 24, 64, 64)
    x = _inception(n, "4d", x, 112, 144, 288, 32, 64, 64)
    _auxiliary_loss(n, "loss2", x)
    x = n.pool("pool4/3x3_s2", _inception(n, "4e", x, 256, 160, 320, 32, 128, 128))
    x = _inception(n, "5a", x, 256, 160, 320, 32, 128, 128)
    x = n.pool("pool5/7x7_s1", _inception(n, "5b", x, 384, 192, 384, 48, 128, 128), *GLOBAL)
    x = n.dropout("pool5/drop_7x7_s1", x, 0.4)
    n.filler = XAVIER
    return n.add_loss_and_prob(n.ip("loss3/classifier", x, 1000), loss="loss3/loss3")


def _inception(
    n: PrototxtBuilder,
    name: str,
    x: str,
    num_1x1: int,
    reduce3: int,
    num_3x3: int,
    reduce5: int,
    num_5x5: int,
    num_projected: int,
) -> str:
    name = f"inception_{name}"
    a = n.conv_relu(f"{name}/1x1", x, num_1x1, 1)
    b = n.conv_relu(f"{name}/3x3", n.conv_relu(f"{name}/3x3_reduce", x, reduce3, 1), num_3x3, 3, "pad: 1")
    c = n.conv_relu(f"{name}/5x5", n.conv_relu(f"{name}/5x5_reduce", x, reduce5, 1), num_5x5, 5, "pad: 2")
    d = n.conv_relu(f"{name}/pool_proj", n.pool(f"{name}/pool", x, "kernel_size: 3 stride: 1 pad: 1"), num_projected, 1)
    return n.concat(f"{name}/output", a, b, c, d)


def _auxiliary_loss(n: PrototxtBuilder, name: str, x: str) -> None:
    """Add a side exit, which the authors' training net has in TEST as well; here inference does without."""
    start, filler = len(n.lines), n.filler
    x = n.conv_relu(f"{name}/conv", n.pool(f"{name}/ave_pool", x, "kernel_size: 5 stride: 3", "AVE"), 128, 1)
    x = n.dropout(f"{name}/drop_fc", n.relu(n.ip(f"{name}/fc", x, 1024)), 0.7)
    n.filler = XAVIER
    n.loss(n.ip(f"{name}/classifier", x, 1000), f"{name}/{name}", 0.3, name=f"{name}/loss")
    n.filler = filler
    n.lines[start:-1] = [f"{line[:-2]} include {{ phase: TRAIN }} }}" for line in n.lines[start:-1]]


def squeezenet() -> str:
    n = PrototxtBuilder("SqueezeNet_v1.1", 16, 3, 227, 227)
    n.relu_name = lambda x: re.sub("([^/]+)$", r"relu_\1", x)
    x = n.pool("pool1", n.conv_relu("conv1", "data", 64, 3, "stride: 2"))
    for index, squeeze in zip(range(2, 10), (16, 16, 32, 32, 48, 48, 64, 64), strict=True):
        s = n.conv_relu(f"fire{index}/squeeze1x1", x, squeeze, 1)
        a = n.conv_relu(f"fire{index}/expand1x1", s, 4 * squeeze, 1)
        b = n.conv_relu(f"fire{index}/expand3x3", s, 4 * squeeze, 3, "pad: 1")
        x = n.concat(f"fire{index}/concat", a, b)
        if index in (3, 5):
            x = n.pool(f"pool{index}", x)
    n.filler = gaussian(0.01)
    x = n.conv_relu("conv10", n.dropout("drop9", x), 1000, 1)
    return n.add_loss_and_prob(n.pool("pool10", x, *GLOBAL))


def resnet(blocks: tuple[int, ...], batch: int) -> str:
    """Write a ResNet. The blocks of a stage are a, b, c ..., or a, b1, b2 ... in the long stages of deep nets."""
    n = PrototxtBuilder(f"ResNet-{3 * sum(blocks) + 2}", batch, 3, 224, 224)
    n.filler, n.relu_name = MSRA, "{}_relu".format
    n.bn_name, n.scale_name = (
        lambda x, prefix=prefix: f"{prefix}_{x}" if x == "conv1" else x.replace("res", prefix)
        for prefix in ("bn", "scale")
    )
    n.conv("conv1", "data", 64, 7, "pad: 3 stride: 2", bias=sum(blocks) == 16)
    x = n.pool("pool1", n.norm("conv1"))
    for stage, repeats in enumerate(blocks, 2):
        is_deep = sum(blocks) > 16 and stage in (3, 4)
        for i in range(repeats):
            name, width = f"res{stage}{f'b{i}' if is_deep and i else 'abcdef'[i]}", 16 << stage
            stride = "stride: 2" if stage > 2 and not i else ""
            side = x if i else n.conv_norm(f"{name}_branch1", x, 4 * width, 1, stride, relu=False)
            y = n.conv_norm(f"{name}_branch2a", x, width, 1, stride)
            y = n.conv_norm(f"{name}_branch2b", y, width, 3, "pad: 1")
            y = n.conv_norm(f"{name}_branch2c", y, 4 * width, 1, relu=False)
            x = n.relu(n.add("Eltwise", name, [side, y]))
    return n.add_loss_and_prob(n.ip("fc1000", n.pool("pool5", x, *GLOBAL), 1000))


def _mobilenet(name: str) -> PrototxtBuilder:
    n = PrototxtBuilder(name, 8, 3, 224, 224, param_specs=PARAM_SPECS)
    n.filler, n.scale_param_specs = MSRA, SCALE_PARAM_SPECS
    return n


def mobilenet() -> str:
    n = _mobilenet("MOBILENET")
    x, width = n.conv_norm("conv1", "data", 32, 3, "pad: 1 stride: 2"), 32
    widths = (64, 128, 128, 256, 256, *(512,) * 6, 1024, 1024)
    names = ("2_1", "2_2", "3_1", "3_2", "4_1", "4_2", *(f"5_{i}" for i in range(1, 7)), "6")
    for layer_number, outputs, stride in zip(names, widths, (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1), strict=True):
        settings = f"pad: 1 group: {width}" + (" stride: 2" if stride == 2 else "")
        x = n.conv_norm(
            f"conv{layer_number}/sep", n.conv_norm(f"conv{layer_number}/dw", x, width, 3, settings), outputs, 1
        )
        width = outputs
    return n.add_loss_and_prob(n.conv("fc7", n.pool("pool6", x, *GLOBAL), 1000, 1))


def mobilenet_v2() -> str:
    """Write MobileNetV2: blocks that expand, filter each channel, and project, with a sum around those of stride 1."""
    n = _mobilenet("MOBILENET_V2")
    n.norm_top = name_with_part("bn")
    x = n.conv_norm("conv1", "data", 32, 3, "pad: 1 stride: 2")
    stages = {2: (16, 24), 3: (24, 32), 4: (32, 32, 64, 64, 64, 64, 96), 5: (96, 96, 160), 6: (160, 160, 320)}
    names = [f"{stage}_{i}" for stage, widths in stages.items() for i in range(1, len(widths) + 1)]
    widths = [32, *(width for stage_widths in stages.values() for width in stage_widths)]
    for name, (width, outputs) in zip(names, pairwise(widths), strict=True):
        wide = width if name == "2_1" else 6 * width
        settings = f"pad: 1 group: {wide}" + (" stride: 2" if name in ("2_2", "3_2", "4_7", "5_3") else "")
        y = n.conv_norm(f"conv{name}/dwise", n.conv_norm(f"conv{name}/expand", x, wide, 1), wide, 3, settings)
        y = n.conv_norm(f"conv{name}/linear", y, outputs, 1, relu=False)
        x = n.add("Eltwise", f"block_{name}", [x, y]) if width == outputs else y
    x = n.pool("pool6", n.conv_norm("conv6_4", x, 1280, 1), *GLOBAL)
    return n.add_loss_and_prob(n.conv("fc7", x, 1000, 1))


def lstm() -> str:
    """Write a classifier of each step of sequences: (steps, streams, features)."""
    n = PrototxtBuilder("LSTM", 20, 32, 256, label_shape=(20, 32))
    n.add("Input", "cont", [], f"input_param {{ shape {{ {format_dims((20, 32))} }} }}")
    x = n.add("LSTM", "lstm", ["data", "cont"], f"recurrent_param {{ num_output: 512 {XAVIER} }}")
    x = n.add("InnerProduct", "ip", [x], f"inner_product_param {{ num_output: 1000 axis: 2 {XAVIER} }}")
    return n.add_loss_and_prob(x, axis=2)


NETS = {
    "lenet": lenet,
    "cifar10_full": cifar10_full,
    "alexnet": alexnet,
    "caffenet": lambda: alexnet("CaffeNet", 1, pool_first=True),
    "vgg16": vgg16,
    "googlenet": googlenet,
    "squeezenet": squeezenet,
    "resnet50": lambda: resnet((3, 4, 6, 3), 8),
    "resnet101": lambda: resnet((3, 4, 23, 3), 8),
    "resnet152": lambda: resnet((3, 8, 36, 3), 8),
    "mobilenet": mobilenet,
    "mobilenet_v2": mobilenet_v2,
    "lstm": lstm,
}

if __name__ == "__main__":
    for name, text in NETS.items():
        write_config(name, text())
