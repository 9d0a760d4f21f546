"""Writes the nets of `benchmarks/against_torch.py` to configs/: well-known architectures, layer by layer.

In phase TRAIN each ends in SoftmaxWithLoss, in TEST in the probabilities. Run it from anywhere; it takes no flags.
"""

from __future__ import annotations

from config_writer import MSRA, XAVIER, Writer, dims, write


def lenet() -> str:
    n = Writer("LeNet", 64, 1, 28, 28)
    x = n.pool("pool1", n.conv("conv1", "data", 20, 5), "kernel_size: 2 stride: 2")
    x = n.pool("pool2", n.conv("conv2", x, 50, 5), "kernel_size: 2 stride: 2")
    return n.end(n.ip("ip2", n.relu(n.ip("ip1", x, 500)), 10))


def cifar10_full() -> str:
    n = Writer("CIFAR10_full", 100, 3, 32, 32)
    pool, norm = "kernel_size: 3 stride: 2", "local_size: 3 alpha: 5e-05 norm_region: WITHIN_CHANNEL"
    x = n.relu(n.pool("pool1", n.conv("conv1", "data", 32, 5, "pad: 2"), pool))
    x = n.conv_relu("conv2", n.lrn("norm1", x, norm), 32, 5, "pad: 2")
    x = n.lrn("norm2", n.pool("pool2", x, pool, "AVE"), norm)
    x = n.pool("pool3", n.conv_relu("conv3", x, 64, 5, "pad: 2"), pool, "AVE")
    return n.end(n.ip("ip1", x, 10))


def caffenet() -> str:
    n = Writer("CaffeNet", 32, 3, 227, 227)
    pool, norm = "kernel_size: 3 stride: 2", "local_size: 5 alpha: 0.0001"
    x = n.lrn("norm1", n.pool("pool1", n.conv_relu("conv1", "data", 96, 11, "stride: 4"), pool), norm)
    x = n.lrn("norm2", n.pool("pool2", n.conv_relu("conv2", x, 256, 5, "pad: 2 group: 2"), pool), norm)
    x = n.conv_relu("conv3", x, 384, 3, "pad: 1")
    x = n.conv_relu("conv4", x, 384, 3, "pad: 1 group: 2")
    x = n.pool("pool5", n.conv_relu("conv5", x, 256, 3, "pad: 1 group: 2"), pool)
    for top in ("fc6", "fc7"):
        x = n.dropout(n.relu(n.ip(top, x, 4096)), 0.5)
    return n.end(n.ip("fc8", x, 1000))


def googlenet() -> str:
    n = Writer("GoogLeNet", 16, 3, 224, 224)
    pool, norm = "kernel_size: 3 stride: 2", "local_size: 5 alpha: 0.0001"
    x = n.pool("pool1", n.conv_relu("conv1", "data", 64, 7, "pad: 3 stride: 2"), pool)
    x = n.conv_relu("conv2_reduce", n.lrn("norm1", x, norm), 64, 1)
    x = n.lrn("norm2", n.conv_relu("conv2", x, 192, 3, "pad: 1"), norm)
    x = _inception(n, "3a", n.pool("pool2", x, pool), 64, 96, 128, 16, 32, 32)
    x = n.pool("pool3", _inception(n, "3b", x, 128, 128, 192, 32, 96, 64), pool)
    x = _inception(n, "4a", x, 192, 96, 208, 16, 48, 64)
    _auxiliary_loss(n, "loss1", x)
    x = _inception(n, "4b", x, 160, 112, 224, 24, 64, 64)
    x = _inception(n, "4c", x, 128, 128, 256, 24, 64, 64)
    x = _inception(n, "4d", x, 112, 144, 288, 32, 64, 64)
    _auxiliary_loss(n, "loss2", x)
    x = n.pool("pool4", _inception(n, "4e", x, 256, 160, 320, 32, 128, 128), pool)
    x = _inception(n, "5a", x, 256, 160, 320, 32, 128, 128)
    x = n.pool("pool5", _inception(n, "5b", x, 384, 192, 384, 48, 128, 128), "global_pooling: true", "AVE")
    return n.end(n.ip("fc", n.dropout(x, 0.4), 1000))


def _inception(
    n: Writer, name: str, x: str, one: int, reduce3: int, three: int, reduce5: int, five: int, p: int
) -> str:
    a = n.conv_relu(f"{name}_1x1", x, one, 1)
    b = n.conv_relu(f"{name}_3x3", n.conv_relu(f"{name}_3x3_reduce", x, reduce3, 1), three, 3, "pad: 1")
    c = n.conv_relu(f"{name}_5x5", n.conv_relu(f"{name}_5x5_reduce", x, reduce5, 1), five, 5, "pad: 2")
    d = n.conv_relu(f"{name}_proj", n.pool(f"{name}_pool", x, "kernel_size: 3 stride: 1 pad: 1"), p, 1)
    return n.concat(f"{name}_out", a, b, c, d)


def _auxiliary_loss(n: Writer, name: str, x: str) -> None:
    """Add a side exit, which Caffe's file has in TEST as well; here inference does without."""
    start = len(n.lines)
    x = n.conv_relu(f"{name}_conv", n.pool(f"{name}_pool", x, "kernel_size: 5 stride: 3", "AVE"), 128, 1)
    x = n.dropout(n.relu(n.ip(f"{name}_fc", x, 1024)), 0.7)
    n.loss(n.ip(f"{name}_classifier", x, 1000), name, 0.3)
    n.lines[start:-1] = [f"{line[:-2]} include {{ phase: TRAIN }} }}" for line in n.lines[start:-1]]


def squeezenet() -> str:
    n = Writer("SqueezeNet_1.1", 16, 3, 227, 227)
    pool = "kernel_size: 3 stride: 2"
    x = n.pool("pool1", n.conv_relu("conv1", "data", 64, 3, "stride: 2"), pool)
    for number, squeeze in zip(range(2, 10), (16, 16, 32, 32, 48, 48, 64, 64), strict=True):
        s = n.conv_relu(f"fire{number}_squeeze1x1", x, squeeze, 1)
        a = n.conv_relu(f"fire{number}_expand1x1", s, 4 * squeeze, 1)
        b = n.conv_relu(f"fire{number}_expand3x3", s, 4 * squeeze, 3, "pad: 1")
        x = n.concat(f"fire{number}", a, b)
        if number in (3, 5):
            x = n.pool(f"pool{number}", x, pool)
    x = n.conv_relu("conv10", n.dropout(x, 0.5), 1000, 1)
    return n.end(n.pool("pool10", x, "global_pooling: true", "AVE"))


def resnet(blocks: tuple[int, ...], batch: int) -> str:
    n = Writer(f"ResNet-{3 * sum(blocks) + 2}", batch, 3, 224, 224)
    n.filler = MSRA
    x = n.pool("pool1", n.conv_norm("conv1", "data", 64, 7, "pad: 3 stride: 2"), "kernel_size: 3 stride: 2")
    for stage, repeats in enumerate(blocks):
        for i in range(repeats):
            name, width = f"res{stage + 2}_{i}", 64 << stage
            stride = "stride: 2" if stage and not i else ""
            side = x if i else n.conv_norm(f"{name}_side", x, 4 * width, 1, stride, relu=False)
            y = n.conv_norm(f"{name}_a", x, width, 1, stride)
            y = n.conv_norm(f"{name}_b", y, width, 3, "pad: 1")
            y = n.conv_norm(f"{name}_c", y, 4 * width, 1, relu=False)
            x = n.relu(n.add("Eltwise", name, [side, y]))
    return n.end(n.ip("fc", n.pool("pool5", x, "global_pooling: true", "AVE"), 1000))


def mobilenet() -> str:
    n = Writer("MobileNet_v1", 8, 3, 224, 224)
    n.filler = MSRA
    x, width = n.conv_norm("conv1", "data", 32, 3, "pad: 1 stride: 2"), 32
    outputs = (64, 128, 128, 256, 256, *(512,) * 6, 1024, 1024)
    for number, (out, stride) in enumerate(zip(outputs, (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1), strict=True), 2):
        more = f"pad: 1 group: {width}" + (" stride: 2" if stride == 2 else "")
        x = n.conv_norm(f"conv{number}", n.conv_norm(f"conv{number}_dw", x, width, 3, more), out, 1)
        width = out
    return n.end(n.conv("fc", n.pool("pool", x, "global_pooling: true", "AVE"), 1000, 1))


def lstm() -> str:
    """Write a classifier of each step of sequences: (steps, streams, features)."""
    n = Writer("LSTM", 20, 32, 256, labels=(20, 32))
    n.add("Input", "cont", [], f"input_param {{ shape {{ {dims((20, 32))} }} }}")
    x = n.add("LSTM", "lstm", ["data", "cont"], f"recurrent_param {{ num_output: 512 {XAVIER} }}")
    x = n.add("InnerProduct", "ip", [x], f"inner_product_param {{ num_output: 1000 axis: 2 {XAVIER} }}")
    return n.end(x, axis=2)


NETS = {
    "lenet": lenet,
    "cifar10_full": cifar10_full,
    "caffenet": caffenet,
    "googlenet": googlenet,
    "squeezenet": squeezenet,
    "resnet50": lambda: resnet((3, 4, 6, 3), 8),
    "resnet152": lambda: resnet((3, 8, 36, 3), 8),
    "mobilenet": mobilenet,
    "lstm": lstm,
}

if __name__ == "__main__":
    for name, text in NETS.items():
        write(name, text())
