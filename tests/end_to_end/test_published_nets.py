"""The nets of `configs/` equal the published nets: weight files load by name, and outputs are equal."""

import re
import zipfile
import zlib
from pathlib import Path

import jax
import numpy as np
import pytest

from caffejax import Net
from caffejax.base.variables import Variables
from caffejax.core.graph import Graph

CONFIGS = Path(__file__).parents[2] / "configs"
CORPUS = Path(__file__).parents[3] / "shared" / "corpus"
SSD = Path(__file__).parents[3] / "shared" / "corpus_ssd"
BVLC, KAIMING, SHICAI = "BVLC__caffe__", "KaimingHe__deep-residual-networks__prototxt__", "shicai__"
PUBLISHED = {
    "lenet": f"{BVLC}examples__mnist__lenet",
    "cifar10_full": f"{BVLC}examples__cifar10__cifar10_full",
    "alexnet": f"{BVLC}models__bvlc_alexnet__deploy",
    "caffenet": f"{BVLC}models__bvlc_reference_caffenet__deploy",
    "googlenet": f"{BVLC}models__bvlc_googlenet__deploy",
    "vgg16": "yjxiong__caffe__models__action_recognition__cuhk_action_spatial_vgg_16_deploy",
    "squeezenet": "forresti__SqueezeNet__SqueezeNet_v1.1__deploy",
    "resnet50": f"{KAIMING}ResNet-50-deploy",
    "resnet101": f"{KAIMING}ResNet-101-deploy",
    "resnet152": f"{KAIMING}ResNet-152-deploy",
    "mobilenet": f"{SHICAI}MobileNet-Caffe__mobilenet_deploy",
    "mobilenet_v2": f"{SHICAI}MobileNet-Caffe__mobilenet_v2_deploy",
    "densenet121": f"{SHICAI}DenseNet-Caffe__DenseNet_121",
    "se_resnet50": "hujie-frank__SENet__models__SE-ResNet-50",
    "openpose": "CMU-Perceptual-Computing-Lab__openpose__models__pose__coco__pose_deploy_linevec",
    "mobilenet_ssd": "chuanqi305__MobileNet-SSD__deploy",
    "ssd300": "ssd300_deploy",
}
LONG = ("alexnet", "caffenet", "vgg16", "resnet101", "resnet152", "densenet121", "openpose")


def get_param_shapes(graph: Graph) -> dict[str, list[tuple[int, ...]]]:
    return {layer.name: [tuple(p.spec.shape) for p in layer.params] for layer in graph.layers if layer.params}


def make_config_net(name: str) -> Net:
    return Net(CONFIGS / name / "train_val.prototxt", "TEST").with_batch(1)


def make_published_net(name: str) -> Net:
    folder = SSD if name == "ssd300" else CORPUS
    if not folder.is_dir():
        pytest.skip(f"needs the published nets in {folder}, which are absent")
    if name == "ssd300":
        text = (SSD / "ssd300_deploy.prototxt").read_text()
        return Net(re.sub(r"save_output_param \{[^}]*\}", "", text), "TEST")
    with zipfile.ZipFile(CORPUS / "nets.zip") as nets:
        text = nets.read(f"nets/{PUBLISHED[name]}.prototxt").decode()
    if name == "openpose":  # published for no size at all
        text = text.replace("dim: 1\n    dim: 1\n", "dim: 368\n    dim: 656\n")
    if name == "vgg16":  # the actions' net ends without probabilities
        text = text.replace("fc8-1", "fc8").replace("num_output: 101", "num_output: 1000")
        text += 'layer { name: "prob" type: "Softmax" bottom: "fc8" top: "prob" }'
    return Net(text, "TEST").with_batch(1)


def draw_variables(net: Net) -> Variables:
    """Return variables that preserve the magnitude of activations, with realistic running statistics."""
    random = np.random.default_rng(0)

    def draw(path: tuple[jax.tree_util.DictKey, ...], initial: jax.Array) -> np.ndarray:
        if initial.ndim > 1 and initial.shape[0] > 1:
            return random.normal(0, np.sqrt(2 / np.prod(initial.shape[1:])), initial.shape).astype(np.float32)
        return random.uniform(0.5, 1, initial.shape).astype(np.float32)

    return Variables(*jax.tree_util.tree_map_with_path(draw, tuple(net.init(jax.random.key(0)))))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] if name in LONG else []) for name in PUBLISHED]
)
def test_configs_equal_the_published_nets(name: str) -> None:
    config, published = make_config_net(name), make_published_net(name)
    assert get_param_shapes(config.graph) == get_param_shapes(published.graph)
    assert config.input_names == published.input_names
    image = np.random.default_rng(1).uniform(-1, 1, config.graph.blobs[config.input_names[0]].shape)
    inputs = {config.input_names[0]: image.astype(np.float32)}
    variables = draw_variables(config)
    expected, actual = (net.freeze(variables)(inputs) for net in (published, config))
    assert set(actual) == set(expected)
    for output, array in expected.items():
        scale = np.abs(np.asarray(array)).max()
        assert scale > 0
        np.testing.assert_allclose(np.asarray(actual[output]), np.asarray(array), rtol=0, atol=1e-4 * scale)


@pytest.mark.parametrize(
    ("name", "checksum"),
    [("fcn8s", 4121288785), ("segnet", 2815234094), ("pspnet50", 1682440963), ("face_detector", 4012668249)],
)
def test_names_and_shapes_have_the_recorded_checksums(name: str, checksum: int) -> None:
    assert zlib.crc32(repr(sorted(get_param_shapes(make_config_net(name).graph).items())).encode()) == checksum
