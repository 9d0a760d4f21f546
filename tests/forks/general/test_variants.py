"""Forks' types and variants are found without being imported before, and only by nets that have them."""

import importlib.metadata
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from caffejax import forks
from caffejax.core.layers import declare, layer_types, packages, type_of
from caffejax.core.layers.registry import plain_type, register_variants
from caffejax.core.layers.types import Variants
from caffejax.core.schema.caffe_pb2 import LayerParameter

REPOSITORY = Path(__file__).parents[3]
SOURCES = Path(forks.__file__).parents[2]


def run_python(text: str, *arguments: str) -> str:
    """Run a program in a new process; return what it prints."""
    path = os.pathsep.join([str(SOURCES), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.run(
        [sys.executable, "-c", text, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_nets_of_caffe_import_nothing_of_forks() -> None:
    """Not to build them, to train them, or to read their weights."""
    text = """
import sys, caffejax, jax
from caffejax.core.layers import packages
for name in ("lenet", "googlenet", "resnet50"):
    for phase in ("TRAIN", "TEST"):
        text = open(f"configs/{name}/train_val.prototxt").read()
        net = caffejax.core.schema.read_net(text)
        for layer in net.layer:
            if layer.type == "Data":
                layer.Clear(), layer.ParseFromString(b"")
        for layer in net.layer:
            layer.type and caffejax.core.layers.type_of(layer)
net = caffejax.Net('''
    layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } shape { dim: 2 } } top: "l" }
    layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 4 } }
    layer { name: "bn" type: "BatchNorm" bottom: "ip" top: "bn" }
    layer { name: "loss" type: "SoftmaxWithLoss" bottom: "bn" bottom: "l" top: "loss" }''', "TRAIN")
net.init(jax.random.key(0))
print([name for name in sys.modules if name.startswith("caffejax.forks")], packages._list_entries.cache_info().misses)
"""
    assert run_python(text) == "[] 0\n"


def make_layer(layer_type: str, n_bottoms: int, n_tops: int, **fields: Any) -> LayerParameter:
    layer = LayerParameter(name="layer", type=layer_type, **fields)
    layer.bottom.extend(f"b{i}" for i in range(n_bottoms))
    layer.top.extend(f"t{i}" for i in range(n_tops))
    return layer


# a layer of each variant, with what tells it from BVLC's, and the fork that it is from
VARIANT_LAYERS = {
    "bottoms": (make_layer("InnerProduct", 2, 1), "caffe-windows"),
    "further bottoms": (make_layer("SigmoidCrossEntropyLoss", 3, 1), "MNC"),
    "tops": (make_layer("SoftmaxWithLoss", 2, 3), "R-FCN"),
    "a field": (make_layer("InnerProduct", 1, 1, inner_product_param={"enable_noise": True}), "MyCaffe"),
    "a field with its default": (
        make_layer("BatchNorm", 1, 1, batch_norm_param={"use_weight_bias": True}),
        "NVIDIA Caffe, Intel Caffe",
    ),
    "a field that says no": (make_layer("BatchNorm", 1, 1, batch_norm_param={"use_weight_bias": False}), "Intel Caffe"),
    "a message": (make_layer("Filter", 2, 2, filter_param={"num_output": 2}), "channel-pruning"),
    "a shared message": (make_layer("SoftmaxWithLoss", 2, 1, loss_param={"weight_by_label_freqs": True}), "SegNet"),
    "blobs": (make_layer("BatchNorm", 1, 1, blobs=[{} for _ in range(5)]), "NVIDIA Caffe, Intel Caffe"),
}
# one of each further type that has a single variant
LAYERS_OF_SINGLE_VARIANTS = {
    "Eltwise": (make_layer("Eltwise", 1, 1), "FlowNet 2"),
    "distances": (make_layer("Accuracy", 2, 1, accuracy_param={"min_is_better": True}), "caffe-windows"),
    "labels of pairs": (
        make_layer("ContrastiveLoss", 3, 1, contrastive_loss_param={"distance_calculation": "EUCLIDEAN"}),
        "MyCaffe",
    ),
    "records in random order": (
        make_layer("Data", 0, 1, data_param={"shuffle": True}),
        "NVIDIA Caffe, Intel Caffe, yjxiong/caffe",
    ),
    "an unscaled Dropout": (
        make_layer("Dropout", 1, 1, dropout_param={"scale_train": False}),
        "SegNet, synopsys-caffe",
    ),
    "resized images": (
        make_layer("ImageData", 0, 2, image_data_param={"short_side": 5}),
        "NVIDIA Caffe, Intel Caffe, channel-pruning",
    ),
    "deconvolution": (make_layer("LRN", 1, 1, lrn_param={"deconv_ignore": True}), "Deep Visualization Toolbox"),
    "a filler": (make_layer("Parameter", 0, 1, parameter_param={"blob_filler": {}}), "caffe-windows"),
    "nonlinearities": (make_layer("RNN", 2, 1, rnn_param={}), "cbfinn/caffe"),
    "limits": (make_layer("Scale", 1, 1, scale_param={"min_value": 0}), "caffe-windows, OpenCV"),
    "a temperature": (make_layer("Softmax", 1, 1, softmax_param={"temperature": 2}), "cbfinn/caffe"),
}
PLAIN_LAYERS = {
    "Eltwise": make_layer("Eltwise", 2, 1),
    "InnerProduct": make_layer("InnerProduct", 1, 1, inner_product_param={"num_output": 2}),
    "Filter": make_layer("Filter", 2, 1),
    "BatchNorm": make_layer("BatchNorm", 1, 1, batch_norm_param={"eps": 0.1}, blobs=[{} for _ in range(3)]),
    "SoftmaxWithLoss": make_layer("SoftmaxWithLoss", 2, 1, loss_param={"ignore_label": 1}),
    "SigmoidCrossEntropyLoss": make_layer("SigmoidCrossEntropyLoss", 2, 1),
    "Accuracy": make_layer("Accuracy", 2, 1, accuracy_param={"top_k": 5}),
    "ContrastiveLoss": make_layer("ContrastiveLoss", 3, 1, contrastive_loss_param={"legacy_version": True}),
    "Data": make_layer("Data", 0, 1, data_param={"rand_skip": 5}),
    "Dropout": make_layer("Dropout", 1, 1, dropout_param={"dropout_ratio": 0.25}),
    "ImageData": make_layer("ImageData", 0, 2, image_data_param={"shuffle": True}),
    "LRN": make_layer("LRN", 1, 1, lrn_param={"k": 2}),
    "Parameter": make_layer("Parameter", 0, 1, parameter_param={"shape": {"dim": [2]}}),
    "RNN": make_layer("RNN", 2, 1, recurrent_param={"num_output": 2}),
    "Scale": make_layer("Scale", 1, 1, scale_param={"bias_term": True}),
    "Softmax": make_layer("Softmax", 1, 1, softmax_param={"axis": 2}),
}

TYPE_OF_LAYER = """
import sys
from caffejax.core.layers import type_of
from caffejax.core.schema.caffe_pb2 import LayerParameter
for text in sys.argv[1:]:
    print(type_of(LayerParameter.FromString(bytes.fromhex(text))).docs.origin)
"""


@pytest.mark.parametrize("name", VARIANT_LAYERS)
def test_a_variant_is_found_when_nothing_was_imported(name: str) -> None:
    """Before and after it, layers of Caffe's own type are Caffe's."""
    layer, origin = VARIANT_LAYERS[name]
    plain_layer = PLAIN_LAYERS[layer.type]
    texts = [x.SerializeToString().hex() for x in (plain_layer, layer, plain_layer)]
    assert run_python(TYPE_OF_LAYER, *texts).splitlines() == ["BVLC", origin, "BVLC"]


def test_single_variants_are_found_when_nothing_of_their_type_was_imported() -> None:
    layers = [
        (x, origin)
        for layer, variant_origin in LAYERS_OF_SINGLE_VARIANTS.values()
        for x, origin in (
            (PLAIN_LAYERS[layer.type], "BVLC"),
            (layer, variant_origin),
            (PLAIN_LAYERS[layer.type], "BVLC"),
        )
    ]
    texts = [layer.SerializeToString().hex() for layer, _ in layers]
    assert run_python(TYPE_OF_LAYER, *texts).splitlines() == [origin for _, origin in layers]
    all_types = {layer.type for layer, _ in (*VARIANT_LAYERS.values(), *LAYERS_OF_SINGLE_VARIANTS.values())}
    assert all_types == set(json.loads(Path(forks.__file__).with_name("index.json").read_text())["variants"])


@pytest.mark.parametrize("name", VARIANT_LAYERS)
def test_variants_and_their_plain_types_are_pickled_by_name(name: str) -> None:
    layer, origin = VARIANT_LAYERS[name]
    types = [type_of(layer), plain_type(layer.type), layer_types()[layer.type], type_of(PLAIN_LAYERS[layer.type])]
    assert types[1] is types[3]
    text = pickle.dumps(types)
    assert [copy is t for copy, t in zip(pickle.loads(text), types, strict=True)] == [True] * 4
    program = """
import pickle, sys
variant, plain, united, same_plain = pickle.loads(bytes.fromhex(sys.argv[1]))
assert plain is same_plain
print(variant.docs.origin, plain.docs.origin, list(united.implementation.types), sep="|")
"""
    united = types[2].implementation
    assert isinstance(united, Variants)
    assert run_python(program, text.hex()) == f"{origin}|BVLC|{list(united.types)}\n"


def test_the_first_variant_is_plain() -> None:
    for name in json.loads(Path(forks.__file__).with_name("index.json").read_text())["variants"]:
        united = layer_types()[name].implementation
        assert isinstance(united, Variants)
        assert next(iter(united.types.values())) is plain_type(name)
        assert plain_type(name).docs.origin == "BVLC"


def test_a_variant_has_the_name_of_its_type() -> None:
    other = declare("Other")(lambda x: x).type
    before = layer_types()["ReLU"]
    with pytest.raises(ValueError, match="all variants of layer type 'ReLU' must have this name, not 'Other'"):
        register_variants("ReLU", lambda layer: None, {"other": other}, "It never is.")
    assert layer_types()["ReLU"] is before


def test_forks_are_found_without_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget() -> None:
        packages._list_entries.cache_clear()

    for entries in ([], [importlib.metadata.EntryPoint("json", "json", packages.GROUP)]):
        monkeypatch.setattr(importlib.metadata, "entry_points", lambda *, group, entries=entries: entries)
        forget()
        assert packages.list_own_packages() == [forks.LAYERS]
    monkeypatch.undo()
    forget()
