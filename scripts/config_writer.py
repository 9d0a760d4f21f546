"""A prototxt being written, a layer a line: what the scripts that make configs/ share."""

from __future__ import annotations

import sys
from pathlib import Path

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
XAVIER = 'weight_filler { type: "xavier" }'
MSRA = 'weight_filler { type: "msra" }'


class Writer:
    """A prototxt being written. Every method adds a layer named like its top and returns that."""

    def __init__(self, name: str, *data: int, labels: tuple[int, ...] = ()) -> None:
        self.filler = XAVIER
        self.params = ""
        self.lines = [f'name: "{name}"']
        if data:
            self.input("data", *data)
            self.input("label", *(labels or data[:1]), phase="TRAIN")

    def input(self, top: str, *shape: int, phase: str = "") -> str:
        return self.add("Input", top, [], f"input_param {{ shape {{ {dims(shape)} }} }}", phase=phase)

    def add(self, kind: str, top: str, bottoms: list[str], more: str = "", *, name: str = "", phase: str = "") -> str:
        wiring = " ".join(f'bottom: "{b}"' for b in bottoms)
        rule = f"include {{ phase: {phase} }}" if phase else ""
        parts = (f'name: "{name or top}"', f'type: "{kind}"', wiring, f'top: "{top}"', more, rule)
        self.lines.append("layer { " + " ".join(part for part in parts if part) + " }")
        return top

    def conv(self, top: str, x: str, outputs: int, kernel: int, more: str = "", *, bias: bool = True) -> str:
        more = f"{more} bias_term: false" if not bias else more
        inner = f"num_output: {outputs} kernel_size: {kernel} {more} {self.filler}"
        return self.add(
            "Convolution", top, [x], f"{self.params} convolution_param {{ {' '.join(inner.split())} }}".strip()
        )

    def relu(self, x: str) -> str:
        return self.add("ReLU", x, [x], name=f"relu_{x}")

    def conv_relu(self, top: str, x: str, outputs: int, kernel: int, more: str = "") -> str:
        return self.relu(self.conv(top, x, outputs, kernel, more))

    def conv_norm(self, top: str, x: str, outputs: int, kernel: int, more: str = "", *, relu: bool = True) -> str:
        """Add Convolution, BatchNorm and Scale, the latter two in place."""
        self.conv(top, x, outputs, kernel, more, bias=False)
        self.add("BatchNorm", top, [top], name=f"bn_{top}")
        self.add("Scale", top, [top], "scale_param { bias_term: true }", name=f"scale_{top}")
        return self.relu(top) if relu else top

    def pool(self, top: str, x: str, more: str, method: str = "MAX") -> str:
        return self.add("Pooling", top, [x], f"pooling_param {{ pool: {method} {more} }}")

    def lrn(self, top: str, x: str, more: str) -> str:
        return self.add("LRN", top, [x], f"lrn_param {{ {more} beta: 0.75 }}")

    def ip(self, top: str, x: str, outputs: int) -> str:
        return self.add("InnerProduct", top, [x], f"inner_product_param {{ num_output: {outputs} {self.filler} }}")

    def dropout(self, x: str, ratio: float) -> str:
        return self.add("Dropout", x, [x], f"dropout_param {{ dropout_ratio: {ratio} }}", name=f"drop_{x}")

    def concat(self, top: str, *xs: str) -> str:
        return self.add("Concat", top, list(xs))

    def loss(self, x: str, top: str = "loss", weight: float = 1, axis: int = 1) -> str:
        more = f"loss_weight: {weight}" if weight != 1 else ""
        more += f"softmax_param {{ axis: {axis} }}" if axis != 1 else ""
        return self.add("SoftmaxWithLoss", top, [x, "label"], more, phase="TRAIN")

    def end(self, x: str, axis: int = 1) -> str:
        """Add the loss and the probabilities, of classes along that axis; return the whole text."""
        self.loss(x, axis=axis)
        self.add("Softmax", "prob", [x], f"softmax_param {{ axis: {axis} }}" if axis != 1 else "", phase="TEST")
        return self.text()

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def write(name: str, text: str, file: str = "train_val") -> None:
    """Write a net to its folder of configs/; scripts say that they did."""
    folder = CONFIGS / name
    folder.mkdir(exist_ok=True)
    (folder / f"{file}.prototxt").write_text(f"# scripts/{Path(sys.argv[0]).name} writes this file\n{text}")


def dims(shape: tuple[int, ...]) -> str:
    return " ".join(f"dim: {n}" for n in shape)
