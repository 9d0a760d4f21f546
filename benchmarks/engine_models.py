"""Write a net as the files that the engines of `engine_competitor.py` read."""

from __future__ import annotations

import subprocess
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from training_competitor import CONFIGS, draw_inputs, draw_variables

from caffejax import Net, Variables, read_net, save_weights
from caffejax.core.schema.caffe_pb2 import NetParameter
from caffejax.export import InferenceModel


def write_models(name: str, batch: int, folder: Path, exporter: str) -> None:
    """Write deploy.prototxt, weights.caffemodel, inputs.npz, model.onnx, and ncnn's files if pnnx is installed.

    Raises:
        ImportError: if the exporter is not installed.
    """
    model = CONFIGS / name / "train_val.prototxt"
    train_val_net = Net(model)
    net = train_val_net.for_inference().with_batch(batch)
    variables, data = draw_variables(net), draw_inputs(net, batch)["data"]
    write_onnx = _ONNX[exporter]
    write_onnx(train_val_net, variables, data, folder / "model.onnx")
    write_deploy(read_net(model), net, folder / "deploy.prototxt")
    save_weights(folder / "weights.caffemodel", net.graph, variables)
    np.savez(folder / "inputs.npz", data=data)
    single_image_path = folder / "single.onnx"
    write_onnx(train_val_net, variables, data[:1], single_image_path)
    _write_ncnn(single_image_path, folder / "model.ncnn")


def _write_caffejax_onnx(net: Net, variables: Variables, data: np.ndarray, path: Path) -> None:
    from caffejax.export import write_onnx

    write_onnx(InferenceModel(net.for_inference().with_batch(len(data)), variables), path, symbolic_batch=False)


def _write_torch_onnx(net: Net, variables: Variables, data: np.ndarray, path: Path) -> None:
    import torch
    from torch_net import TorchNet, trace_net

    class NetWithoutLabels(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = trace_net(TorchNet(net.graph, variables))

        def forward(self, data: torch.Tensor) -> Any:
            return self.net(data, data)

    module = NetWithoutLabels().eval()
    names: Any = {"input_names": ["data"], "output_names": ["output"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it does not fold
        torch.onnx.export(module, (torch.from_numpy(data),), path, dynamo=False, verbose=False, **names)


_ONNX = {"torch": _write_torch_onnx, "caffejax": _write_caffejax_onnx}
EXPORTERS = tuple(_ONNX)  # who writes the ONNX model


def write_deploy(deploy: NetParameter, net: Net, path: Path) -> None:
    """Write the layers of a definition that the net has, for the net's input shapes; this changes the definition."""
    names = {layer.name for layer in net.graph.layers}
    layers = [layer for layer in deploy.layer if layer.name in names]
    del deploy.layer[:]
    for layer in layers:
        layer.ClearField("include")
        if layer.type == "Input":
            del layer.input_param.shape[:]
            for top in layer.top:
                layer.input_param.shape.add(dim=net.graph.blobs[top].shape)
    deploy.layer.extend(layers)
    path.write_text(str(deploy))


def _write_ncnn(onnx_path: Path, ncnn_path: Path) -> None:
    """Convert a model of one image with pnnx; without pnnx, or if it fails, no files are written."""
    try:
        from pnnx import EXEC_PATH  # type: ignore[import-not-found]
    except ImportError:
        return
    files = f"ncnnparam={ncnn_path}.param", f"ncnnbin={ncnn_path}.bin"
    subprocess.run([EXEC_PATH, onnx_path, "fp16=0", *files], cwd=onnx_path.parent, capture_output=True, check=False)
