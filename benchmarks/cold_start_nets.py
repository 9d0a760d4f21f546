"""Nets for `cold_start.py`: found in folders and archives, with generated weights and inputs."""

from __future__ import annotations

import contextlib
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from engine_models import write_deploy
from training_competitor import BATCHES, CONFIGS, draw_inputs

from caffejax import CaffejaxError, Net, Variables, read_net, save_weights
from caffejax.base.variables import Params
from caffejax.core.checkpoints.load_save import load_and_report
from caffejax.core.graph.reshape import reshape_graph
from caffejax.core.schema.caffe_pb2 import NetParameter

PUBLISHED = {  # how the published files end
    "lenet": ("mnist*lenet.prototxt",),
    "cifar10_full": ("cifar10_full.prototxt",),
    "alexnet": ("bvlc_alexnet*deploy.prototxt",),
    "googlenet": ("bvlc_googlenet*deploy.prototxt",),
    "squeezenet": ("SqueezeNet_v1.1*deploy.prototxt",),
    "resnet50": ("ResNet-50-deploy.prototxt",),
    "resnet152": ("ResNet-152-deploy.prototxt",),
    "mobilenet": ("MobileNet-Caffe*mobilenet_deploy.prototxt", "mobilenet_deploy.prototxt"),
    "mobilenet_ssd": ("MobileNetSSD_deploy.prototxt", "MobileNet-SSD*deploy.prototxt"),
    "openpose": ("mpi*pose_deploy_linevec_faster_4_stages.prototxt",),
    "qrcode": ("wechat*detect.prototxt",),
    "ssd300": ("ssd300_deploy.prototxt", "SSD_300x300*deploy.prototxt"),
    "fcn8s": ("fcn8s*deploy.prototxt",),
    "lstm": ("lstm*deploy.prototxt",),
}
CONFIG_OF = {"alexnet": "caffenet"}  # the similar net whose training is measured for it
TRAINED = ("lenet", "cifar10_full", "alexnet", "googlenet", "squeezenet", "resnet50", "resnet152", "mobilenet")
DETECTIONS = "DetectionOutput"
OPEN_SIZE = 368  # of images whose size the prototxt leaves open: OpenPose's say 1x1
SPREAD = 2.0  # standard deviation of what the last layers with weights give


@dataclass
class NetFiles:
    """A net's prototxt, and the weights beside it if there are any."""

    name: str
    prototxt: Path
    weights: Path | None = None


def find_nets(names_or_paths: Iterable[str], scratch: Path) -> list[NetFiles]:
    """Return the requested nets.

    Args:
        names_or_paths: names of `PUBLISHED`, prototxts, and folders or zip files in which the names are looked up
            first.
        scratch: the folder into which archives are unpacked.
    """
    names, folders, nets = [], list[Path](), list[NetFiles]()
    for name_or_path in names_or_paths:
        path = Path(name_or_path)
        if path.is_dir():
            folders.append(path)
        elif zipfile.is_zipfile(path):
            zipfile.ZipFile(path).extractall(scratch / path.stem)
            folders.append(scratch / path.stem)
        elif path.is_file():
            nets.append(NetFiles(path.stem, path, _find_weights(path)))
        elif name_or_path in PUBLISHED:
            names.append(name_or_path)
        else:
            raise SystemExit(f"--nets: {name_or_path} is no file, folder, or name: {', '.join(PUBLISHED)}")
    if not names and not nets:
        names = list(PUBLISHED)
    return [net for name in names for net in _find_named(name, folders)] + nets


def _find_named(name: str, folders: Iterable[Path]) -> Iterator[NetFiles]:
    """Find a net by name: a published file, or else the net in configs/."""
    files = [file for folder in folders for file in sorted(folder.rglob("*.prototxt"))]
    for pattern in PUBLISHED[name]:
        for file in files:
            if fnmatch(str(file), f"*{pattern}"):
                yield NetFiles(name, file, _find_weights(file))
                return
    config = CONFIGS / CONFIG_OF.get(name, name) / "train_val.prototxt"
    if config.exists():
        yield NetFiles(name, config)
    else:
        print(f"{name}: not found, left out")


def _find_weights(prototxt: Path) -> Path | None:
    weights = prototxt.with_suffix(".caffemodel")
    return weights if weights.exists() else None


def write_inference(net_files: NetFiles, folder: Path) -> None:
    """Write the files of the competitors: deploy.prototxt, weights.caffemodel, inputs of two sizes, about.json."""
    message = read_net(net_files.prototxt)
    for layer in message.layer:
        if layer.type == DETECTIONS:
            layer.detection_output_param.ClearField("save_output_param")  # it names files
    _size_images(message)
    net = Net(message, "TEST").for_inference()
    if len(net.graph.blobs[net.input_names[0]].shape) == 4:
        with contextlib.suppress(CaffejaxError):  # layers may have a batch size of their own
            net = net.with_batch(1)
    write_deploy(message, net, folder / "deploy.prototxt")
    net = Net(folder / "deploy.prototxt", "TEST")
    first, second = (_draw_inputs(shapes) for shapes in _choose_input_shapes(net))
    np.savez(folder / "first.npz", **first)  # type: ignore[arg-type]
    np.savez(folder / "second.npz", **second)  # type: ignore[arg-type]
    variables = _draw_variables(net)
    if net_files.weights is not None:
        variables, _ = load_and_report(net_files.weights, net.graph, variables)
    else:
        variables = _rescale_last_layers(net, variables, first)
    save_weights(folder / "weights.caffemodel", net.graph, variables)
    producers = {top: layer for layer in net.graph.layers for top in layer.tops}
    outputs = {blob: producers[blob].name for blob in net.outputs}
    detections = [blob for blob in net.outputs if producers[blob].type.name == DETECTIONS]
    (folder / "about.json").write_text(json.dumps({"outputs": outputs, "detections": detections}))


def _size_images(net: NetParameter) -> None:
    for layer in net.layer:
        for shape in layer.input_param.shape:
            if len(shape.dim) == 4 and list(shape.dim[2:]) == [1, 1]:
                shape.dim[2:] = [OPEN_SIZE, OPEN_SIZE]


def write_onnx_model(folder: Path) -> None:
    """Write model.onnx beside deploy.prototxt.

    Raises:
        CaffejaxError, ImportError: if it cannot be exported.
    """
    from caffejax.export import InferenceModel, write_onnx

    net = Net(folder / "deploy.prototxt", "TEST")
    write_onnx(InferenceModel(net.for_inference(), net.load(folder / "weights.caffemodel")), folder / "model.onnx")


def write_training(name: str, folder: Path) -> Net:
    """Write solver.prototxt, its net with the batch size of the other benchmarks, weights, and one batch of data."""
    config = CONFIG_OF.get(name, name)
    batch = BATCHES[config]
    message = read_net(CONFIGS / config / "train_val.prototxt")
    for layer in message.layer:
        for shape in layer.input_param.shape:
            shape.dim[0] = batch
    (folder / "train.prototxt").write_text(str(message))
    net = Net(folder / "train.prototxt", "TRAIN")
    save_weights(folder / "weights.caffemodel", net.graph, _draw_variables(net))
    np.savez(folder / "batch.npz", **draw_inputs(net, batch))  # type: ignore[arg-type]
    (folder / "solver.prototxt").write_text(
        'net: "train.prototxt" type: "SGD" lr_policy: "fixed" base_lr: 0.001 momentum: 0.9 weight_decay: 0.0005\n'
        "max_iter: 100 random_seed: 1 snapshot_after_train: false\n"
    )
    return net


def _choose_input_shapes(net: Net) -> tuple[Mapping[str, tuple[int, ...]], Mapping[str, tuple[int, ...]]]:
    """Return the net's own input shapes, and other valid ones: with a smaller image, or else another first axis."""
    net_shapes = {name: net.graph.blobs[name].shape for name in net.input_names}
    for change_shape in (_shrink_image, _double_batch):
        changed_shapes = {name: change_shape(shape) for name, shape in net_shapes.items()}
        try:
            reshape_graph(net.graph, changed_shapes)
        except CaffejaxError:
            continue
        if changed_shapes != net_shapes:
            return net_shapes, changed_shapes
    raise CaffejaxError(f"{net.graph.name} takes inputs of one size only")


def _shrink_image(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Make images narrower by a quarter, in steps of 16 pixels, without changing their height."""
    return (*shape[:3], shape[3] * 3 // 4 // 16 * 16) if len(shape) == 4 else shape


def _double_batch(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (2 * shape[0], *shape[1:])


def _draw_inputs(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Draw standard normal inputs; a matrix holds continuation indicators, which are 0 at the first step only."""
    rng = np.random.default_rng(0)
    inputs = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    for name, shape in shapes.items():
        if len(shape) == 2 and len(shapes) > 1:
            inputs[name] = np.ones(shape, np.float32)
            inputs[name][0] = 0
    return inputs


def _draw_variables(net: Net) -> Variables:
    """Draw weights that preserve the scale of activations, and running statistics close to those of normal numbers."""
    rng = np.random.default_rng(1)

    def draw_blob(layer_type: str, index: int, shape: tuple[int, ...]) -> jax.Array:
        return jnp.asarray(draw_numbers(layer_type, index, shape), jnp.float32)

    def draw_numbers(layer_type: str, index: int, shape: tuple[int, ...]) -> np.ndarray:
        if layer_type == "BatchNorm":
            count = np.ones(shape)
            return (rng.normal(0, 0.1, shape), rng.uniform(0.5, 1.5, shape), count)[index]
        if layer_type in ("Scale", "PReLU", "Normalize"):
            low, high = {"Scale": (0.5, 1), "PReLU": (0.1, 0.3), "Normalize": (10, 20)}[layer_type]
            return rng.uniform(low, high, shape) if index == 0 else rng.normal(0, 0.1, shape)
        if len(shape) < 2:
            return rng.normal(0, 0.05, shape)
        fan_in = shape[0] * shape[2] * shape[3] / 4 if layer_type == "Deconvolution" else np.prod(shape[1:])
        gain = 1 if layer_type in ("LSTM", "RNN") else 2
        scale = np.float32(np.sqrt(gain / fan_in))
        return scale * rng.standard_normal(shape, np.float32)

    variables, layers = net.init(jax.random.key(0)), net.graph.layers

    def draw_tree(tree: Params) -> Params:
        """Replace params and statistics; keep other state that passes hand on to each other."""
        indices = {param.slot: (layer.type.name, i) for layer in layers for i, param in enumerate(layer.params)}
        return {
            key: {
                name: draw_blob(*indices[key, name], blob.shape) if (key, name) in indices else blob
                for name, blob in blobs.items()
            }
            for key, blobs in tree.items()
        }

    return Variables(draw_tree(variables.params), draw_tree(variables.state))


def _rescale_last_layers(net: Net, variables: Variables, inputs: Mapping[str, np.ndarray]) -> Variables:
    """Scale the last layers with weights, so that scores differ and are not all 0 or 1."""
    last_layers = {}
    inputs_of_weights = set[str]()  # blobs behind which there are weights
    for layer in reversed(net.graph.layers):
        has_weights = layer.type.name in ("Convolution", "InnerProduct", "Deconvolution")
        if has_weights and inputs_of_weights.isdisjoint(layer.tops):
            last_layers[layer.key] = layer.tops[0]
        if layer.params or not inputs_of_weights.isdisjoint(layer.tops):
            inputs_of_weights.update(layer.bottoms)
    blobs, _ = net.forward(
        *variables, {k: jnp.asarray(v) for k, v in inputs.items()}, blobs=tuple(last_layers.values())
    )
    params = dict(variables.params)
    for key, top in last_layers.items():
        scale = SPREAD / max(float(jnp.std(blobs[top])), 1e-6)
        params[key] = {i: a * scale for i, a in params[key].items()}
    return Variables(params, variables.state)
