"""A caffejax graph as a torch module, so that `against_torch.py` compares the same net."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
import torch.fx
import torch.nn.functional as F
from torch import nn
from torch_ssd import SSD_FUNCTIONS, SsdLayer

from caffejax import Graph, Variables
from caffejax.core.graph import Layer
from caffejax.core.layers.dispatch import forward


class TorchNet(nn.Module):
    """Runs the layers of a graph with torch's functions, on the same blobs.

    In TRAIN, forward takes data and labels and returns the sum of the losses; in TEST it returns the first output.
    """

    def __init__(self, graph: Graph, variables: Variables) -> None:
        super().__init__()
        self.graph = graph
        self.weights = nn.ParameterDict()
        self.norms = nn.ModuleDict()
        self.ssd = nn.ModuleDict()
        for layer in graph.layers:
            for i, array in enumerate(p.array(*variables) for p in layer.params if p.spec.learnable):
                self.weights[f"{layer.key}/{i}"] = nn.Parameter(torch.from_numpy(np.array(array)))
            if layer.type.name == "BatchNorm":
                mean, variance, count = (np.asarray(param.array(*variables)) for param in layer.params)
                norm = nn.BatchNorm2d(len(mean), eps=layer.context.param.eps, momentum=0.001, affine=False)
                count = count if count else 1
                norm.running_mean, norm.running_var = torch.tensor(mean / count), torch.tensor(variance / count)
                self.norms[layer.key] = norm
            if layer.type.name in SSD_FUNCTIONS:
                self.ssd[layer.key] = SsdLayer(layer)
            if layer.type.name == "PriorBox":  # the same for all images
                bottoms = [jnp.zeros(graph.blobs[b].shape) for b in layer.bottoms]
                self.register_buffer(layer.key, torch.from_numpy(np.array(forward(layer.context, (), bottoms)[0][0])))
        self._calls = [(layer, getattr(self, f"_{layer.type.name}")) for layer in graph.layers]
        self.train(graph.phase == "TRAIN")

    def forward(self, data: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        values = {"data": data, "label": label}
        loss: Any = 0
        for layer, function in self._calls:
            if layer.type.name == "Input":
                continue
            tops = function(layer, *(values[b] for b in layer.bottoms))
            tops = tops if isinstance(tops, tuple) else (tops,)
            values.update(zip(layer.tops, tops, strict=True))
            for top, weight in zip(tops, layer.loss_weights, strict=True):
                loss = loss + weight * top if weight else loss
        return loss if self.training else values[self.graph.outputs[0]]

    def _blob(self, layer: Layer, i: int) -> Any:
        return self.weights[f"{layer.key}/{i}"] if i < len(layer.params) else None

    def _Input(self, layer: Layer) -> None:  # noqa: N802
        raise AssertionError

    def _Split(self, layer: Layer, x: torch.Tensor) -> tuple[torch.Tensor, ...]:  # noqa: N802
        return (x,) * len(layer.tops)

    def _Convolution(self, layer: Layer, x: torch.Tensor) -> torch.Tensor:  # noqa: N802
        p = layer.context.param
        stride, pad, dilation = (p.stride or [1])[0], (p.pad or [0])[0], (p.dilation or [1])[0]
        return F.conv2d(x, self._blob(layer, 0), self._blob(layer, 1), stride, pad, dilation, p.group)

    def _InnerProduct(self, layer: Layer, x: torch.Tensor) -> torch.Tensor:  # noqa: N802
        return F.linear(x.flatten(1), self._blob(layer, 0), self._blob(layer, 1))

    def _ReLU(self, layer: Layer, x: torch.Tensor) -> torch.Tensor:  # noqa: N802
        return F.relu(x)

    def _Pooling(self, layer: Layer, x: torch.Tensor) -> torch.Tensor:  # noqa: N802
        p = layer.context.param
        if p.global_pooling:
            return F.adaptive_avg_pool2d(x, 1)
        if p.pool == p.MAX:
            return F.max_pool2d(x, p.kernel_size, p.stride, p.pad, ceil_mode=True)
        return F.avg_pool2d(x, p.kernel_size, p.stride, p.pad, ceil_mode=True)

    def _LRN(self, layer: Layer, x: torch.Tensor) -> torch.Tensor:  # noqa: N802
        p = layer.context.param
        if p.norm_region == p.ACROSS_CHANNELS:
            return F.local_response_norm(x, p.local_size, p.alpha, p.beta, p.k)
        mean = F.avg_pool2d(x * x, p.local_size, 1, p.local_size // 2, ceil_mode=True)
        return x * (1 + p.alpha * mean) ** -p.beta

    def _BatchNorm(self, layer: Layer, x: torch.Tensor) -> torch.Tensor:  # noqa: N802
        return self.norms[layer.key](x)

    def _Scale(self, layer: Layer, x: torch.Tensor) -> torch.Tensor:  # noqa: N802
        return torch.addcmul(self._blob(layer, 1).view(-1, 1, 1), x, self._blob(layer, 0).view(-1, 1, 1))

    def _Eltwise(self, layer: Layer, *xs: torch.Tensor) -> torch.Tensor:  # noqa: N802
        return sum(xs[1:], xs[0])

    def _Concat(self, layer: Layer, *xs: torch.Tensor) -> torch.Tensor:  # noqa: N802
        return torch.cat(xs, layer.context.param.axis)

    def _Dropout(self, layer: Layer, x: torch.Tensor) -> torch.Tensor:  # noqa: N802
        return F.dropout(x, layer.context.param.dropout_ratio, self.training)

    def _Softmax(self, layer: Layer, x: torch.Tensor) -> torch.Tensor:  # noqa: N802
        return F.softmax(x, layer.context.param.axis)

    def _SoftmaxWithLoss(self, layer: Layer, x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:  # noqa: N802
        return F.cross_entropy(x.flatten(1), label)

    def _Flatten(self, layer: Layer, x: torch.Tensor) -> torch.Tensor:  # noqa: N802
        return x.flatten(layer.context.param.axis)

    def _Reshape(self, layer: Layer, x: torch.Tensor) -> torch.Tensor:  # noqa: N802
        return x.reshape([n or x.shape[i] for i, n in enumerate(layer.context.param.shape.dim)])

    def _PriorBox(self, layer: Layer, *_: torch.Tensor) -> torch.Tensor:  # noqa: N802
        return getattr(self, layer.key)

    def _Normalize(self, layer: Layer, x: torch.Tensor) -> torch.Tensor:  # noqa: N802
        return self.ssd[layer.key](x, self._blob(layer, 0))

    def _run_ssd_layer(self, layer: Layer, *xs: torch.Tensor) -> torch.Tensor:
        return self.ssd[layer.key](*xs)

    _Permute = _MultiBoxLoss = _DetectionOutput = _run_ssd_layer


class _Tracer(torch.fx.Tracer):
    """Traces into all modules except SSD's layers."""

    def is_leaf_module(self, m: nn.Module, name: str) -> bool:
        return isinstance(m, SsdLayer) or super().is_leaf_module(m, name)


def trace_net(net: TorchNet) -> torch.fx.GraphModule:
    """Unroll the loop over layers, which torch.compile cannot trace, into code as a torch user would write it."""
    _fuse_norms(net)
    return torch.fx.GraphModule(net, _Tracer().trace(net))


def _fuse_norms(net: TorchNet) -> None:
    """Replace BatchNorm followed by Scale by one affine BatchNorm2d, as torch's users write it."""
    scales = {layer.bottoms[0]: layer for layer in net.graph.layers if layer.type.name == "Scale"}
    for layer in net.graph.layers:
        if layer.type.name == "BatchNorm" and layer.tops == layer.bottoms and layer.tops[0] in scales:
            scale, norm = scales[layer.tops[0]], net.norms[layer.key]
            norm.affine = True
            norm.weight, norm.bias = (net.weights.pop(f"{scale.key}/{i}") for i in (0, 1))
    net._calls = [(layer, function) for layer, function in net._calls if layer not in scales.values()]
