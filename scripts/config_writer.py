"""A builder of prototxt, one layer a line, for the scripts that make configs/."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
XAVIER = 'weight_filler { type: "xavier" }'
MSRA = 'weight_filler { type: "msra" }'
PARAM_SPECS = "param { lr_mult: 1 } param { lr_mult: 2 decay_mult: 0 }"
SCALE_PARAM_SPECS = "param { lr_mult: 1 decay_mult: 0 } param { lr_mult: 1 decay_mult: 0 }"


def numbered_relu(x: str) -> str:
    """Name a ReLU as most authors do: relu1_1 after conv1_1, relu6 after fc6."""
    return re.sub("conv|fc|ip|pool", "relu", x.removesuffix("/bn"), count=1)


def name_with_part(part: str) -> Callable[[str], str]:
    """Name layers by the name of the layer before, a slash and a part, such as conv1/bn."""
    return f"{{}}/{part}".format


class PrototxtBuilder:
    """Builds the prototxt of a net. Each method adds a layer that is named after its top, and returns the name.

    `relu_name`, `bn_name` and `scale_name` are functions that derive the name of a layer from the name of the
    convolution before it, as the authors of the net do. `norm_top` derives the top of BatchNorm; if it returns its
    argument, BatchNorm works in place.
    """

    def __init__(self, name: str, *data_shape: int, label_shape: tuple[int, ...] = (), param_specs: str = "") -> None:
        self.filler = XAVIER
        self.param_specs = param_specs
        self.scale_param_specs = ""
        self.relu_name, self.norm_top = numbered_relu, str
        self.bn_name, self.scale_name = name_with_part("bn"), name_with_part("scale")
        self.lines = [f'name: "{name}"']
        if data_shape:
            self.input("data", *data_shape)
            self.input("label", *(label_shape or data_shape[:1]), phase="TRAIN")

    def input(self, top: str, *shape: int, phase: str = "") -> str:
        return self.add("Input", top, [], f"input_param {{ shape {{ {format_dims(shape)} }} }}", phase=phase)

    def add(
        self, layer_type: str, top: str, bottoms: list[str], settings: str = "", *, name: str = "", phase: str = ""
    ) -> str:
        wiring = " ".join(f'bottom: "{b}"' for b in bottoms)
        include_rule = f"include {{ phase: {phase} }}" if phase else ""
        parts = (f'name: "{name or top}"', f'type: "{layer_type}"', wiring, f'top: "{top}"', settings, include_rule)
        self.lines.append("layer { " + " ".join(part for part in parts if part) + " }")
        return top

    def conv(self, top: str, x: str, outputs: int, kernel: int, settings: str = "", *, bias: bool = True) -> str:
        param_specs, fillers = self.param_specs, self.filler
        if not bias:
            settings, param_specs = f"{settings} bias_term: false", param_specs[: param_specs.find("}") + 1]
            fillers = _drop_bias_filler(fillers)
        settings_text = f"num_output: {outputs} kernel_size: {kernel} {settings} {fillers}"
        return self.add(
            "Convolution", top, [x], f"{param_specs} convolution_param {{ {' '.join(settings_text.split())} }}".strip()
        )

    def relu(self, x: str) -> str:
        return self.add("ReLU", x, [x], name=self.relu_name(x))

    def conv_relu(self, top: str, x: str, outputs: int, kernel: int, settings: str = "") -> str:
        return self.relu(self.conv(top, x, outputs, kernel, settings))

    def norm(self, x: str, name: str = "", *, relu: bool = True) -> str:
        """Add BatchNorm and Scale, and ReLU unless told, named after the convolution x or after `name`."""
        top = self.norm_top(name or x)
        self.add("BatchNorm", top, [x], name=self.bn_name(name or x))
        settings = f"{self.scale_param_specs} scale_param {{ bias_term: true }}".strip()
        self.add("Scale", top, [top], settings, name=self.scale_name(name or x))
        return self.relu(top) if relu else top

    def conv_norm(self, top: str, x: str, outputs: int, kernel: int, settings: str = "", *, relu: bool = True) -> str:
        """Add Convolution, BatchNorm and Scale, and ReLU unless told."""
        return self.norm(self.conv(top, x, outputs, kernel, settings, bias=False), relu=relu)

    def pool(self, top: str, x: str, settings: str = "kernel_size: 3 stride: 2", method: str = "MAX") -> str:
        return self.add("Pooling", top, [x], f"pooling_param {{ pool: {method} {settings} }}")

    def lrn(self, top: str, x: str, settings: str = "local_size: 5 alpha: 0.0001") -> str:
        return self.add("LRN", top, [x], f"lrn_param {{ {settings} beta: 0.75 }}")

    def ip(self, top: str, x: str, outputs: int) -> str:
        settings_text = f"inner_product_param {{ num_output: {outputs} {self.filler} }}"
        return self.add("InnerProduct", top, [x], f"{self.param_specs} {settings_text}".strip())

    def dropout(self, name: str, x: str, ratio: float = 0.5) -> str:
        return self.add("Dropout", x, [x], f"dropout_param {{ dropout_ratio: {ratio} }}", name=name)

    def concat(self, top: str, *bottoms: str) -> str:
        return self.add("Concat", top, list(bottoms))

    def loss(self, x: str, top: str = "loss", weight: float = 1, axis: int = 1, name: str = "") -> str:
        settings = f"loss_weight: {weight}" if weight != 1 else ""
        settings += f"softmax_param {{ axis: {axis} }}" if axis != 1 else ""
        return self.add("SoftmaxWithLoss", top, [x, "label"], settings, name=name, phase="TRAIN")

    def add_loss_and_prob(self, x: str, axis: int = 1, loss: str = "loss") -> str:
        """Add the loss and the probabilities, of classes along that axis; return the whole text."""
        self.loss(x, loss, axis=axis)
        self.add("Softmax", "prob", [x], f"softmax_param {{ axis: {axis} }}" if axis != 1 else "", phase="TEST")
        return self.text()

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def _drop_bias_filler(fillers: str) -> str:
    return fillers.split(" bias_filler")[0]


def write_config(name: str, text: str, file: str = "train_val") -> None:
    """Write a net to its folder of configs/; scripts say that they did."""
    folder = CONFIGS / name
    folder.mkdir(exist_ok=True)
    (folder / f"{file}.prototxt").write_text(f"# scripts/{Path(sys.argv[0]).name} writes this file\n{text}")


def format_dims(shape: tuple[int, ...]) -> str:
    return " ".join(f"dim: {n}" for n in shape)
