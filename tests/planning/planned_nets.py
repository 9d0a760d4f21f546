"""Nets to plan: LeNet, and a small residual net."""

from pathlib import Path

LENET = Path(__file__).parents[2] / "configs" / "lenet" / "train_val.prototxt"


def conv(name: str, bottom: str, outputs: int, kernel: int, stride: int = 1, *, relu: bool = True) -> str:
    """Convolution, BatchNorm, Scale and, if `relu`, a ReLU."""
    window = f"num_output: {outputs} kernel_size: {kernel} stride: {stride} pad: {kernel // 2} bias_term: false"
    layers = [
        f'layer {{ name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{name}" convolution_param {{ {window} '
        'weight_filler { type: "msra" } } }',
        *(
            f'layer {{ name: "{kind}_{name}" type: "{kind}" bottom: "{name}" top: "{name}" {fields} }}'
            for kind, fields in (("BatchNorm", ""), ("Scale", "scale_param { bias_term: true }"), ("ReLU", ""))[
                : 2 + relu
            ]
        ),
    ]
    return "\n".join(layers) + "\n"


def layer(name: str, kind: str, top: str, *bottoms: str, fields: str = "") -> str:
    wiring = " ".join(f'bottom: "{bottom}"' for bottom in bottoms)
    return f'layer {{ name: "{name}" type: "{kind}" {wiring} top: "{top}" {fields} }}\n'


def resnet() -> str:
    """A stem, two blocks of two convolutions each, a pooled product. No two convolutions are alike."""
    text = layer("data", "Input", "data", fields="input_param { shape { dim: 8 dim: 3 dim: 32 dim: 32 } }")
    text += layer("label", "Input", "label", fields="input_param { shape { dim: 8 } }")
    text += conv("stem", "data", 16, 3)
    text += layer("pool", "Pooling", "pool", "stem", fields="pooling_param { kernel_size: 3 stride: 2 }")
    x = "pool"
    for name, width in (("one", 24), ("two", 32)):
        text += conv(f"{name}_a", x, width, 3) + conv(f"{name}_b", f"{name}_a", 16, 3, relu=False)
        text += layer(name, "Eltwise", name, x, f"{name}_b") + layer(f"relu_{name}", "ReLU", name, name)
        x = name
    text += layer("mean", "Pooling", "mean", x, fields="pooling_param { pool: AVE global_pooling: true }")
    text += layer("ip", "InnerProduct", "ip", "mean", fields="inner_product_param { num_output: 10 }")
    return text + layer("loss", "SoftmaxWithLoss", "loss", "ip", "label")
