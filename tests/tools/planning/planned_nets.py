"""Nets to plan: LeNet, and a small residual net."""

from pathlib import Path

LENET = Path(__file__).parents[3] / "configs" / "lenet" / "train_val.prototxt"


def make_conv_block(name: str, bottom: str, num_output: int, kernel: int, stride: int = 1, *, relu: bool = True) -> str:
    """Return Convolution, BatchNorm, Scale and, if `relu`, a ReLU."""
    window = f"num_output: {num_output} kernel_size: {kernel} stride: {stride} pad: {kernel // 2} bias_term: false"
    layers = [
        f'layer {{ name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{name}" convolution_param {{ {window} '
        'weight_filler { type: "msra" } } }',
        *(
            f'layer {{ name: "{layer_type}_{name}" type: "{layer_type}" bottom: "{name}" top: "{name}" {fields} }}'
            for layer_type, fields in (("BatchNorm", ""), ("Scale", "scale_param { bias_term: true }"), ("ReLU", ""))[
                : 2 + relu
            ]
        ),
    ]
    return "\n".join(layers) + "\n"


def make_layer(name: str, layer_type: str, top: str, *bottoms: str, fields: str = "") -> str:
    bottom_fields = " ".join(f'bottom: "{bottom}"' for bottom in bottoms)
    return f'layer {{ name: "{name}" type: "{layer_type}" {bottom_fields} top: "{top}" {fields} }}\n'


def make_resnet() -> str:
    """Return a stem, two blocks of two convolutions each, pooling and an InnerProduct. All convolutions differ."""
    text = make_layer("data", "Input", "data", fields="input_param { shape { dim: 8 dim: 3 dim: 32 dim: 32 } }")
    text += make_layer("label", "Input", "label", fields="input_param { shape { dim: 8 } }")
    text += make_conv_block("stem", "data", 16, 3)
    text += make_layer("pool", "Pooling", "pool", "stem", fields="pooling_param { kernel_size: 3 stride: 2 }")
    x = "pool"
    for name, width in (("one", 24), ("two", 32)):
        text += make_conv_block(f"{name}_a", x, width, 3) + make_conv_block(f"{name}_b", f"{name}_a", 16, 3, relu=False)
        text += make_layer(name, "Eltwise", name, x, f"{name}_b") + make_layer(f"relu_{name}", "ReLU", name, name)
        x = name
    text += make_layer("mean", "Pooling", "mean", x, fields="pooling_param { pool: AVE global_pooling: true }")
    text += make_layer("ip", "InnerProduct", "ip", "mean", fields="inner_product_param { num_output: 10 }")
    return text + make_layer("loss", "SoftmaxWithLoss", "loss", "ip", "label")
