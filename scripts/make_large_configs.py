"""Writes well-known nets for large pictures to configs/, at their published sizes, for `benchmarks/large_nets.py`.

OpenPose's body net (COCO), FCN-8s, SegNet, PSPNet-50, DenseNet-121 and SE-ResNet-50, each from its paper, batch 1, to
train (TRAIN has a loss) and to run. Run it from anywhere; it takes no flags.
"""

from __future__ import annotations

from config_writer import MSRA, PARAM_SPECS, PrototxtBuilder, name_with_part, write_config

POOL = "kernel_size: 2 stride: 2"


def vgg_block(n: PrototxtBuilder, block: int, x: str, width: int, repeats: int, pad: int = 1) -> str:
    for i in range(1, repeats + 1):
        x = n.conv_relu(f"conv{block}_{i}", x, width, 3, f"pad: {pad if i == 1 else 1}")
    return x


def openpose() -> str:
    """Two branches, of 38 part affinity fields and 19 heat maps, refined in six stages."""
    n = PrototxtBuilder("OpenPose_COCO", param_specs=PARAM_SPECS)
    n.filler = 'weight_filler { type: "gaussian" std: 0.01 }'
    x = n.input("image", 1, 3, 368, 656)
    n.input("fields", 1, 38, 46, 82, phase="TRAIN")
    n.input("maps", 1, 19, 46, 82, phase="TRAIN")
    for block, (width, repeats) in enumerate(((64, 2), (128, 2), (256, 4)), 1):
        x = n.pool(f"pool{block}_stage1", vgg_block(n, block, x, width, repeats), POOL)
    x = vgg_block(n, 4, x, 512, 2)
    features = n.conv_relu("conv4_4_CPM", n.conv_relu("conv4_3_CPM", x, 256, 3, "pad: 1"), 128, 3, "pad: 1")
    x = features
    for stage in range(1, 7):
        kernel, repeats, narrow, name = (3, 3, 512, "conv5_{}_CPM") if stage == 1 else (7, 5, 128, "Mconv{}_stage{}")
        outputs = []
        for branch, channels, target in (1, 38, "fields"), (2, 19, "maps"):
            y, name_format = x, f"{name}_L{branch}"
            for i in range(1, repeats + 1):
                y = n.conv_relu(name_format.format(i, stage), y, 128, kernel, f"pad: {kernel // 2}")
            y = n.conv_relu(name_format.format(repeats + 1, stage), y, narrow, 1)
            y = n.conv(name_format.format(repeats + 2, stage), y, channels, 1)
            n.add("EuclideanLoss", f"loss_stage{stage}_L{branch}", [y, target], "loss_weight: 1", phase="TRAIN")
            outputs.append(y)
        if stage < 6:
            x = n.concat(f"concat_stage{stage + 1}", *outputs, features)
        n.param_specs = "param { lr_mult: 4 decay_mult: 1 } param { lr_mult: 8 decay_mult: 0 }"
    n.add("Concat", "net_output", outputs[::-1], name="concat_stage7", phase="TEST")
    return n.text()


def deconv(n: PrototxtBuilder, top: str, x: str, channels: int, kernel: int, stride: int) -> str:
    """Add upsampling that is not learned. Its authors fill the weights by a script; they are zeros until some load."""
    inner = f"num_output: {channels} kernel_size: {kernel} stride: {stride} bias_term: false"
    return n.add("Deconvolution", top, [x], f"param {{ lr_mult: 0 }} convolution_param {{ {inner} }}")


def crop(n: PrototxtBuilder, top: str, x: str, reference: str, offset: int) -> str:
    return n.add("Crop", top, [x, reference], f"crop_param {{ axis: 2 offset: {offset} }}")


def pixelwise(n: PrototxtBuilder, x: str, ignored: int = 255) -> str:
    """End with a loss of each pixel."""
    n.add("SoftmaxWithLoss", "loss", [x, "label"], f"loss_param {{ ignore_label: {ignored} }}", phase="TRAIN")
    return n.text()


def fcn8s() -> str:
    n = PrototxtBuilder("FCN-8s", 1, 3, 500, 500, label_shape=(1, 1, 500, 500), param_specs=PARAM_SPECS)
    x, skips = "data", {}
    for block, (width, repeats) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)), 1):
        x = n.pool(f"pool{block}", vgg_block(n, block, x, width, repeats, 100 if block == 1 else 1), POOL)
        skips[block] = x
    x = n.dropout("drop6", n.conv_relu("fc6", x, 4096, 7))
    x = n.dropout("drop7", n.conv_relu("fc7", x, 4096, 1))
    x = deconv(n, "upscore2", n.conv("score_fr", x, 21, 1), 21, 4, 2)
    for block, offset in (4, 5), (3, 9):
        score = crop(n, f"score_pool{block}c", n.conv(f"score_pool{block}", skips[block], 21, 1), x, offset)
        x = n.add("Eltwise", f"fuse_pool{block}", [x, score])
        x = deconv(n, "upscore_pool4", x, 21, 4, 2) if block == 4 else deconv(n, "upscore8", x, 21, 16, 8)
    return pixelwise(n, crop(n, "score", x, "data", 31))


def bn_segnet(n: PrototxtBuilder, top: str, x: str, width: int) -> str:
    """Add Convolution, SegNet's BN and ReLU. For inference the authors replace BN's blobs by running statistics."""
    fillers = 'scale_filler { type: "constant" value: 1 } shift_filler { type: "constant" value: 0.001 }'
    rates = "param { lr_mult: 1 } param { lr_mult: 1 decay_mult: 0 }"
    n.conv(top, x, width, 3, "pad: 1")
    for phase, mode in ("TRAIN", ""), ("TEST", "bn_mode: INFERENCE "):
        n.add("BN", top, [top], f"{rates} bn_param {{ {mode}{fillers} }}", name=f"{top}_bn", phase=phase)
    return n.relu(top)


def segnet() -> str:
    """An encoder's places of maxima tell the decoder where to put numbers back."""
    n = PrototxtBuilder("SegNet", 1, 3, 360, 480, label_shape=(1, 1, 360, 480), param_specs=PARAM_SPECS)
    n.filler = MSRA
    blocks = ((64, 2, 360), (128, 2, 180), (256, 3, 90), (512, 3, 45), (512, 3, 23))
    x = "data"
    for block, (width, repeats, _) in enumerate(blocks, 1):
        for i in range(1, repeats + 1):
            x = bn_segnet(n, f"conv{block}_{i}", x, width)
        x = n.add("Pooling", f"pool{block}", [x], f'top: "pool{block}_mask" pooling_param {{ pool: MAX {POOL} }}')
    for block, (width, repeats, height) in reversed(list(enumerate(blocks, 1))):
        size = f"upsample_h: {height} upsample_w: {height * 4 // 3 if height != 23 else 30}"
        settings = f"upsample_param {{ scale: 2 {size} }}"
        x = n.add("Upsample", f"pool{block}_D", [x, f"pool{block}_mask"], settings, name=f"upsample{block}")
        for i in range(repeats, 1, -1):
            x = bn_segnet(n, f"conv{block}_{i}_D", x, width)
        if block > 1:
            x = bn_segnet(n, f"conv{block}_1_D", x, blocks[block - 2][0])
    x = n.conv("conv1_1_D", x, 11, 3, "pad: 1")
    n.add("Softmax", "prob", [x], phase="TEST")
    return pixelwise(n, x, 11)


def bn_pspnet(
    n: PrototxtBuilder, top: str, x: str, width: int, kernel: int, settings: str = "", *, relu: bool = True
) -> str:
    """Add Convolution and PSPNet's BN, and ReLU if asked."""
    fillers = 'slope_filler { type: "constant" value: 1 } bias_filler { type: "constant" value: 0 }'
    x = n.conv(top, x, width, kernel, settings, bias=False)
    n.add("BN", top, [x], f"bn_param {{ {fillers} momentum: 0.95 }}", name=f"{top}/bn")
    return n.relu(top) if relu else top


def pspnet50() -> str:
    """PSPNet for the 150 classes of ADE20K."""
    n = PrototxtBuilder("PSPNet-50", 1, 3, 473, 473, label_shape=(1, 1, 473, 473))
    n.filler, n.relu_name = MSRA, name_with_part("relu")
    x = bn_pspnet(n, "conv1_1_3x3_s2", "data", 64, 3, "pad: 1 stride: 2")
    x = bn_pspnet(n, "conv1_2_3x3", x, 64, 3, "pad: 1")
    x = n.pool("pool1_3x3_s2", bn_pspnet(n, "conv1_3_3x3", x, 128, 3, "pad: 1"), "kernel_size: 3 stride: 2 pad: 1")
    for stage, (repeats, stride, dilation) in enumerate(((3, 1, 1), (4, 2, 1), (6, 1, 2), (3, 1, 4)), 2):
        width = 32 << (stage - 1)
        for i in range(1, repeats + 1):
            name, step = f"conv{stage}_{i}", f"stride: {stride}" if i == 1 and stride > 1 else ""
            side = bn_pspnet(n, f"{name}_1x1_proj", x, 4 * width, 1, step, relu=False) if i == 1 else x
            y = bn_pspnet(n, f"{name}_1x1_reduce", x, width, 1, step)
            y = bn_pspnet(n, f"{name}_3x3", y, width, 3, f"pad: {dilation} dilation: {dilation}")
            y = bn_pspnet(n, f"{name}_1x1_increase", y, 4 * width, 1, relu=False)
            x = n.relu(n.add("Eltwise", name, [side, y]))
    pyramid = []
    for size, window in (1, 60), (2, 30), (3, 20), (6, 10):
        y = n.pool(f"conv5_3_pool{size}", x, f"kernel_size: {window} stride: {window}", "AVE")
        y = bn_pspnet(n, f"conv5_3_pool{size}_conv", y, 512, 1)
        pyramid.append(n.add("Interp", f"conv5_3_pool{size}_interp", [y], "interp_param { height: 60 width: 60 }"))
    y = bn_pspnet(n, "conv5_4", n.concat("conv5_3_concat", x, *pyramid[::-1]), 512, 3, "pad: 1")
    y = n.conv("conv6", n.dropout("conv5_4/dropout", y, 0.1), 150, 1)
    return pixelwise(n, n.add("Interp", "conv6_interp", [y], "interp_param { zoom_factor: 8 }"))


def densenet121() -> str:
    """Each layer's input is normalized, not its output."""
    n = PrototxtBuilder("DENSENET_121", 1, 3, 224, 224)
    n.filler, n.norm_top = MSRA, name_with_part("bn")
    x = n.conv_norm("conv1", "data", 64, 7, "pad: 3 stride: 2")
    x, width = n.pool("pool1", x, "kernel_size: 3 stride: 2 pad: 1 ceil_mode: false"), 64
    for stage, repeats in enumerate((6, 12, 24, 16), 2):
        for i in range(1, repeats + 1):
            name = f"conv{stage}_{i}"
            y = n.conv(f"{name}/x1", n.norm(x, f"{name}/x1"), 128, 1, bias=False)
            y = n.conv(f"{name}/x2", n.norm(y, f"{name}/x2"), 32, 3, "pad: 1", bias=False)
            x, width = n.concat(f"concat_{stage}_{i}", x, y), width + 32
        x = n.norm(x, f"conv{stage}_blk")
        if stage < 5:
            width //= 2
            x = n.pool(f"pool{stage}", n.conv(f"conv{stage}_blk", x, width, 1, bias=False), POOL, "AVE")
    n.loss(n.conv("fc6", n.pool("pool5", x, "global_pooling: true", "AVE"), 1000, 1))
    return n.text()


def se_resnet50() -> str:
    n = PrototxtBuilder("SE-ResNet-50", 1, 3, 224, 224)
    n.filler, n.scale_name = MSRA, name_with_part("bn/scale")
    n.relu_name = lambda x: "conv1/relu_7x7_s2" if x.startswith("conv1/") else f"{x}/relu"
    x = n.pool("pool1/3x3_s2", n.conv_norm("conv1/7x7_s2", "data", 64, 7, "pad: 3 stride: 2"))
    for stage, repeats in enumerate((3, 4, 6, 3), 2):
        width = 32 << (stage - 1)
        for i in range(1, repeats + 1):
            name, step = f"conv{stage}_{i}", "stride: 2" if i == 1 and stage > 2 else ""
            y = n.conv_norm(f"{name}_1x1_reduce", x, width, 1, step)
            y = n.conv_norm(f"{name}_3x3", y, width, 3, "pad: 1")
            y = n.conv_norm(f"{name}_1x1_increase", y, 4 * width, 1, relu=False)
            z = n.pool(f"{name}_global_pool", y, "global_pooling: true", "AVE")
            z = n.conv(f"{name}_1x1_up", n.conv_relu(f"{name}_1x1_down", z, width // 4, 1), 4 * width, 1)
            n.add("Sigmoid", z, [z], name=f"{name}_prob")
            side = n.conv_norm(f"{name}_1x1_proj", x, 4 * width, 1, step, relu=False) if i == 1 else x
            x = n.relu(n.add("Axpy", name, [z, y, side]))
    return n.add_loss_and_prob(n.ip("classifier", n.pool("pool5/7x7_s1", x, "global_pooling: true", "AVE"), 1000))


NETS = {
    "openpose": openpose,
    "fcn8s": fcn8s,
    "segnet": segnet,
    "pspnet50": pspnet50,
    "densenet121": densenet121,
    "se_resnet50": se_resnet50,
}

if __name__ == "__main__":
    for name, text in NETS.items():
        write_config(name, text())
