"""Random small nets of layers that oneDNN programs support, for hypothesis to find wrong memory plans."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

Shape = tuple[int, ...]
CHANNELS = (16, 32, 1, 3, 20, 33)  # what lies by blocks first
NEURONS = (
    "ReLU",
    "ReLU relu_param { negative_slope: 0.1 }",
    "Sigmoid",
    "TanH",
    "ELU elu_param { alpha: 0.5 }",
    "AbsVal",
    "Power power_param { scale: -0.5 shift: 0.25 }",
    "Dropout",
    "BatchNorm",
    "Scale scale_param { bias_term: true }",
    "Bias",
    "BNLL",
    "PReLU",
    "Softmax",
)
OUT_OF_PLACE = ("AbsVal", "BNLL", "Softmax")
LRN = (
    "local_size: 3 alpha: 0.3",
    "local_size: 5 alpha: 0.5 beta: 0.5 k: 2",
    "local_size: 3 norm_region: WITHIN_CHANNEL",
)


class NetBuilder:
    """A net under construction: its prototxt so far, and the shapes of its blobs."""

    def __init__(self, draw: Any, shapes: list[Shape]) -> None:
        self.draw = draw
        self.layers: list[str] = []
        self._read_blobs: set[str] = set()  # those that no layer may write over, Caffe says
        self.blobs = {f"x{i}": shape for i, shape in enumerate(shapes)}
        for name, shape in self.blobs.items():
            dims = " ".join(f"dim: {n}" for n in shape)
            self.layers.append(
                f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ {dims} }} }} }}'
            )

    def draw_from(self, options: Any) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def draw_blob(self, min_axes: int = 2) -> str:
        """Draw the name of a blob with at least `min_axes` axes; the last one is more likely."""
        names = [name for name, shape in self.blobs.items() if len(shape) >= min_axes]
        return names[-1] if self.draw(st.booleans()) else self.draw_from(names)

    def add(self, layer_type: str, bottoms: list[str], shape: Shape, param: str = "", in_place: bool = False) -> None:
        name = f"b{len(self.layers)}"
        top = bottoms[0] if in_place else name
        reads = " ".join(f'bottom: "{b}"' for b in bottoms)
        self.layers.append(f'layer {{ name: "{name}" type: "{layer_type}" {reads} top: "{top}" {param} }}')
        self._read_blobs.update(() if in_place else bottoms)
        self.blobs.pop(top, None)
        self.blobs[top] = shape  # the last

    def add_neuron(self) -> None:
        layer_type, _, param = self.draw_from(NEURONS).partition(" ")
        x = self.draw_blob()
        if layer_type == "PReLU" and len(self.blobs[x]) > 4:
            return
        can_be_in_place = layer_type not in OUT_OF_PLACE and x not in self._read_blobs
        self.add(layer_type, [x], self.blobs[x], param, in_place=can_be_in_place and self.draw(st.booleans()))

    def add_lrn(self) -> None:
        x = self.draw_blob(min_axes=4)
        if len(self.blobs[x]) == 4:
            self.add("LRN", [x], self.blobs[x], f"lrn_param {{ {self.draw_from(LRN)} }}")

    def add_convolution(self) -> None:
        x = self.draw_blob(min_axes=3)
        n, c, *plane = self.blobs[x]
        kernel, stride = self.draw_from([1, 3, 3, 5, 2]), self.draw_from([1, 1, 1, 2])
        dilation = self.draw_from([1, 1, 1, 2, 3]) if kernel > 1 else 1
        extent = dilation * (kernel - 1) + 1
        pad = self.draw_from([extent // 2, extent // 2, 0, 1, extent + 1])
        out = self.draw_from(CHANNELS)
        group = self.draw_from([g for g in (1, c, 2) if c % g == 0])
        out = math.lcm(out, group) if group != c else c
        sizes = [(size + 2 * pad - extent) // stride + 1 for size in plane]
        if min(sizes) < 1 or max(sizes) > 24:
            return
        bias = "" if self.draw(st.booleans()) else "bias_term: false"
        param = f"num_output: {out} kernel_size: {kernel} stride: {stride} pad: {pad} group: {group} {bias}"
        param += f" dilation: {dilation}"
        self.add("Convolution", [x], (n, out, *sizes), f"convolution_param {{ {param} }}")

    def add_deconvolution(self) -> None:
        x = self.draw_blob(min_axes=4)
        n, _, *plane = self.blobs[x]
        if max(plane) > 12:
            return
        param = "num_output: 16 kernel_size: 2 stride: 2"
        self.add("Deconvolution", [x], (n, 16, *(2 * s for s in plane)), f"convolution_param {{ {param} }}")

    def add_pooling(self) -> None:
        x = self.draw_blob(min_axes=4)
        n, c, *plane = self.blobs[x]
        if len(plane) != 2:
            return
        method = self.draw_from(["MAX", "AVE"])
        if self.draw(st.integers(0, 4)) == 0:
            self.add("Pooling", [x], (n, c, 1, 1), f"pooling_param {{ pool: {method} global_pooling: true }}")
            return
        kernel, stride, pad = self.draw_from([(3, 1, 1), (2, 2, 0), (3, 2, 0), (3, 2, 1)])
        if min(plane) < kernel:
            return
        sizes = []
        for size in plane:
            count = -((size + 2 * pad - kernel) // -stride) + 1
            sizes.append(count - 1 if pad and (count - 1) * stride >= size + pad else count)
        param = f"pool: {method} kernel_size: {kernel} stride: {stride} pad: {pad}"
        self.add("Pooling", [x], (n, c, *sizes), f"pooling_param {{ {param} }}")

    def add_eltwise(self) -> None:
        x = self.draw_blob()
        same_shape_blobs = [name for name, shape in self.blobs.items() if shape == self.blobs[x]]
        bottoms = [x, *(self.draw_from(same_shape_blobs) for _ in range(self.draw_from([1, 1, 2])))]
        if self.draw(st.booleans()):
            bottoms.reverse()
        operation = self.draw_from(["SUM", "SUM", "MAX", "PROD"])
        self.add("Eltwise", bottoms, self.blobs[x], f"eltwise_param {{ operation: {operation} }}")

    def add_concat(self) -> None:
        x = self.draw_blob()
        axis = self.draw_from([1, 1, 1, 0]) if len(self.blobs[x]) < 4 else self.draw_from([1, 1, 1, 1, 2, 0])
        other_sizes = self.blobs[x][:axis] + self.blobs[x][axis + 1 :]
        compatible_blobs = [
            name
            for name, s in self.blobs.items()
            if s[:axis] + s[axis + 1 :] == other_sizes and len(s) == len(self.blobs[x])
        ]
        bottoms = [x, *(self.draw_from(compatible_blobs) for _ in range(self.draw_from([1, 1, 2, 0])))]
        shape = list(self.blobs[x])
        shape[axis] = sum(self.blobs[b][axis] for b in bottoms)
        if shape[axis] <= 200:
            self.add("Concat", bottoms, tuple(shape), f"concat_param {{ axis: {axis} }}")

    def add_slice(self) -> None:
        x = self.draw_blob()
        n, c, *plane = self.blobs[x]
        if c > 1:
            point = self.draw_from([16, 1] if c > 16 else [1])
            self.add(
                "Slice",
                [x],
                (n, c - point, *plane),
                f'top: "s{len(self.layers)}" slice_param {{ slice_point: {point} }}',
            )
            last = next(reversed(self.blobs))  # its tops in order: the first is the one of `point` channels
            self.blobs |= {last: (n, point, *plane), f"s{last[1:]}": (n, c - point, *plane)}

    def add_permute(self) -> None:
        x = self.draw_blob(min_axes=4)
        n, c, *plane = self.blobs[x]
        if len(plane) == 2:
            order = self.draw_from([(0, 2, 3, 1), (0, 1, 3, 2), (0, 3, 1, 2)])
            param = " ".join(f"order: {i}" for i in order)
            self.add("Permute", [x], tuple((n, c, *plane)[i] for i in order), f"permute_param {{ {param} }}")

    def add_shuffle(self) -> None:
        x = self.draw_blob(min_axes=4)
        c = self.blobs[x][1]
        group = self.draw_from([g for g in (2, 4, 3, 1) if c % g == 0])
        if len(self.blobs[x]) == 4:
            self.add("ShuffleChannel", [x], self.blobs[x], f"shuffle_channel_param {{ group: {group} }}")

    def add_axpy(self) -> None:
        """Return an axpy layer with factors from a pooling, as in squeeze-and-excitation blocks."""
        x = self.draw_blob(min_axes=4)
        shape = self.blobs[x]
        if len(shape) == 4:
            y = self.draw_from([name for name, s in self.blobs.items() if s == shape])
            self.add("Pooling", [x], (*shape[:2], 1, 1), "pooling_param { pool: AVE global_pooling: true }")
            self.add("Axpy", [next(reversed(self.blobs)), x, y], shape)

    def add_dense(self) -> None:
        x = self.draw_blob()
        out = self.draw_from([16, 5])
        self.add("InnerProduct", [x], (self.blobs[x][0], out), f"inner_product_param {{ num_output: {out} }}")

    def add_reshape(self) -> None:
        x = self.draw_blob()
        n, c, *plane = self.blobs[x]
        if self.draw(st.booleans()) or not plane:
            self.add("Flatten", [x], (n, c * math.prod(plane)))
        else:
            self.add(
                "Reshape", [x], (n, c, math.prod(plane), 1), "reshape_param { shape { dim: 0 dim: 0 dim: -1 dim: 1 } }"
            )


MIN_AXES = {  # by name: the axes that a blob for it has at least
    "neuron": 2,
    "convolution": 3,
    "eltwise": 2,
    "concat": 2,
    "pooling": 4,
    "lrn": 4,
    "dense": 2,
    "reshape": 2,
    "slice": 2,
    "permute": 4,
    "shuffle": 4,
    "axpy": 4,
    "deconvolution": 4,
}
FREQUENT_LAYERS = ("convolution", "neuron", "eltwise", "concat")
PLANES = ((7, 7), (6, 9), (4, 4), (5, 3), (6,), (3, 4, 3))


@st.composite
def draw_nets(draw: Any, max_layers: int = 9) -> tuple[str, tuple[str, ...]]:
    """Draw the prototxt of a net, and the names of the blobs to compute."""
    n, plane = draw(st.sampled_from([1, 1, 2, 5, 9])), draw(st.sampled_from(PLANES))
    count = draw(st.sampled_from([1, 1, 2]))
    builder = NetBuilder(draw, [(n, draw(st.sampled_from(CHANNELS)), *plane) for _ in range(count)])
    for _ in range(draw(st.integers(2, max_layers))):
        layer = draw(st.sampled_from([*FREQUENT_LAYERS, *MIN_AXES]))
        if any(len(shape) >= MIN_AXES[layer] for shape in builder.blobs.values()):
            getattr(builder, f"add_{layer}")()
    computed = [name for name in builder.blobs if name not in ("x0", "x1")]
    if not computed:
        builder.add("ReLU", ["x0"], builder.blobs["x0"])
        computed = list(builder.blobs)[-1:]
    output_names = {computed[-1], *draw(st.lists(st.sampled_from(computed), max_size=2))}
    return "\n".join(builder.layers), tuple(sorted(output_names))
