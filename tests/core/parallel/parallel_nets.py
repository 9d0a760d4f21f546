"""Small nets that train on test data, on one device and on many. Nothing here imports JAX."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

CONFIGS = Path(__file__).parents[3] / "configs"
NUM_ROWS = 1500  # not a multiple of most batches: rounds do not end with an iteration


def _make_block(name: str, bottom: str) -> str:
    """Return two convolutions with BatchNorm and Scale, and their sum with the bottom."""

    def convolution(index: int, input_blob: str) -> str:
        key = f"{name}_{index}"
        return f"""
        layer {{ name: "{key}" type: "Convolution" bottom: "{input_blob}" top: "{key}" convolution_param {{
            num_output: 8 kernel_size: 3 pad: 1 bias_term: false weight_filler {{ type: "msra" }} }} }}
        layer {{ name: "bn_{key}" type: "BatchNorm" bottom: "{key}" top: "{key}" }}
        layer {{ name: "scale_{key}" type: "Scale" bottom: "{key}" top: "{key}" scale_param {{ bias_term: true }} }}"""

    relu = f'layer {{ name: "relu_{name}_1" type: "ReLU" bottom: "{name}_1" top: "{name}_1" }}'
    return f"""{convolution(1, bottom)} {relu} {convolution(2, f"{name}_1")}
        layer {{ name: "{name}" type: "Eltwise" bottom: "{bottom}" bottom: "{name}_2" top: "{name}" }}
        layer {{ name: "relu_{name}" type: "ReLU" bottom: "{name}" top: "{name}" }}"""


_RESNET = f"""
layer {{ name: "first" type: "Convolution" bottom: "data" top: "first" convolution_param {{
    num_output: 8 kernel_size: 3 pad: 1 bias_term: false weight_filler {{ type: "msra" }} }} }}
layer {{ name: "bn_first" type: "BatchNorm" bottom: "first" top: "first" }}
layer {{ name: "scale_first" type: "Scale" bottom: "first" top: "first" scale_param {{ bias_term: true }} }}
layer {{ name: "relu_first" type: "ReLU" bottom: "first" top: "first" }}
{_make_block("a", "first")} {_make_block("b", "a")}
layer {{ name: "pool" type: "Pooling" bottom: "b" top: "pool" pooling_param {{ pool: AVE global_pooling: true }} }}
layer {{ name: "ip" type: "InnerProduct" bottom: "pool" top: "ip" inner_product_param {{
    num_output: 10 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }}
layer {{ name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" }}
"""

# a row of the data is a whole sequence: the recurrent layer has time first
_LSTM = """
layer { name: "time" type: "Python" bottom: "data" top: "time"
    python_param { module: "parallel_nets" layer: "put_time_first" } }
layer { name: "label_time" type: "Python" bottom: "label" top: "label_time"
    python_param { module: "parallel_nets" layer: "put_time_first" } }
layer { name: "cont_time" type: "Python" bottom: "cont" top: "cont_time"
    python_param { module: "parallel_nets" layer: "put_time_first" } }
layer { name: "lstm" type: "LSTM" bottom: "time" bottom: "cont_time" top: "lstm" recurrent_param {
    num_output: 16 weight_filler { type: "xavier" } } }
layer { name: "ip" type: "InnerProduct" bottom: "lstm" top: "ip" inner_product_param {
    num_output: 5 axis: 2 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label_time" top: "loss" softmax_param { axis: 2 } }
"""


def put_time_first(x: Any) -> Any:
    """A traced Python layer."""
    return x.swapaxes(0, 1)


_IGNORED = """
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param {
    num_output: 8 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "score" type: "Convolution" bottom: "conv" top: "score" convolution_param {
    num_output: 4 kernel_size: 1 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "score" bottom: "label" top: "loss"
    loss_param { ignore_label: 255 normalization: VALID } }
layer { name: "size" type: "Reduction" bottom: "score" top: "size" loss_weight: 0.0001
    reduction_param { operation: SUMSQ } }
layer { name: "accuracy" type: "Accuracy" bottom: "score" bottom: "label" top: "accuracy"
    accuracy_param { ignore_label: 255 } }
"""


def _config_layers(name: str) -> str:
    """Return the layers of a config without its inputs."""
    lines = (CONFIGS / name / "train_val.prototxt").read_text().splitlines()
    return "\n".join(line for line in lines if line.startswith("layer") and 'type: "Input"' not in line)


class Case(NamedTuple):
    """A net: its layers without the data, the shape of a row of each data blob, solver settings, and options.

    After `iterations`, weights are still equal up to rounding on any processor. Rounding that moves a maximum, or
    changes the sign of a ReLU's input, changes them by about 3e-5: for LeNet this happened after 15 to 30 iterations on
    one processor.
    """

    layers: str
    row_shapes: Mapping[str, tuple[int, ...]]
    settings: str = "base_lr: 0.005 momentum: 0.9 weight_decay: 0.0005"
    options: Mapping[str, Any] = {}
    num_classes: int = 10
    iterations: int = 50


_LENET = _config_layers("lenet")
_SMOOTH = _LENET.replace("pool: MAX", "pool: AVE").replace('type: "ReLU"', 'type: "TanH"')
CASES = {
    "lenet": Case(_LENET, {"data": (1, 28, 28), "label": ()}, iterations=15),
    "smooth": Case(_SMOOTH, {"data": (1, 28, 28), "label": ()}),
    "cifar10_full": Case(
        # published numbers of 1e-4 make activations so small that rounding moves maxima
        re.sub(r'type: "gaussian" std: [\d.]+', 'type: "xavier"', _config_layers("cifar10_full")),
        {"data": (3, 32, 32), "label": ()},
        settings="base_lr: 0.002 momentum: 0.9 weight_decay: 0.004",
    ),
    "resnet": Case(_RESNET, {"data": (3, 12, 12), "label": ()}, options={"sync_bn": True}, iterations=15),
    "lstm": Case(_LSTM, {"data": (6, 8), "label": (6,), "cont": (6,)}, num_classes=5),
    "ignored": Case(_IGNORED, {"data": (3, 6, 6), "label": (6, 6)}, num_classes=4),
}


def write_data(folder: Path, name: str) -> None:
    """Write rows for a net: two files and the list of them."""
    case, rng = CASES[name], np.random.default_rng(1)
    labels = rng.integers(0, case.num_classes, (NUM_ROWS, *case.row_shapes["label"])).astype(np.float32)
    # something to learn: a picture of each class, and a little noise, as training that leaps about would make much of
    # what rounds otherwise
    pictures = rng.normal(0, 0.5, (case.num_classes, *case.row_shapes["data"]))
    classes = labels.reshape(NUM_ROWS, -1)[:, 0].astype(int)
    data = (pictures[classes] + rng.normal(0, 0.1, (NUM_ROWS, *case.row_shapes["data"]))).astype(np.float32)
    if name == "ignored":  # of some rows most labels count, of others none
        labels[rng.random((NUM_ROWS, 6, 6)) < rng.random((NUM_ROWS, 1, 1))] = 255
        labels[::3] = 255
    blobs = {"data": data, "label": labels}
    if "cont" in case.row_shapes:
        blobs["cont"] = np.ones((NUM_ROWS, 6), np.float32)
        blobs["cont"][:, 0] = 0
    for part, rows in enumerate((slice(0, 700), slice(700, None))):
        with h5py.File(folder / f"{name}_{part}.h5", "w") as file:
            for blob, array in blobs.items():
                file[blob] = array[rows]
    (folder / f"{name}.txt").write_text(f"{folder}/{name}_0.h5\n{folder}/{name}_1.h5\n")


def make_solver_text(folder: Path, name: str, batch: int, settings: str = "", prefix: str = "") -> str:
    """Return a solver that contains its net; the default snapshot prefix is the net's name."""
    case = CASES[name]
    tops = " ".join(f'top: "{blob}"' for blob in case.row_shapes)
    data = f"""layer {{ name: "rows" type: "HDF5Data" {tops} hdf5_data_param {{
        source: "{folder}/{name}.txt" batch_size: {batch} shuffle: true }} }}"""
    return f"""net_param {{ name: "{name}" {data} {case.layers} }} {case.settings} lr_policy: "fixed"
        max_iter: 50 random_seed: 7 snapshot_prefix: "{folder}/{prefix or name}" snapshot_after_train: false
        {settings}"""


class Rows:
    """A Python layer without bottoms: 8 rows for all devices, which depend on the number of the pass."""

    def setup(self, bottom: Any, top: Any) -> None:
        self.index = 0

    def reshape(self, bottom: Any, top: Any) -> None:
        top[0].reshape(8, 5)
        top[1].reshape(8, 3)

    def forward(self, bottom: Any, top: Any) -> None:
        rng = np.random.default_rng(self.index)
        self.index += 1
        for blob in top:
            blob.data[...] = rng.normal(size=blob.shape)


def make_source_text(folder: Path) -> str:
    """Return a solver whose net reads `Rows`."""
    return f"""net_param {{
        layer {{ name: "rows" type: "Python" top: "x" top: "target"
          python_param {{ module: "parallel_nets" layer: "Rows" }} }}
        layer {{ name: "ip" type: "InnerProduct" bottom: "x" top: "ip"
          inner_product_param {{ num_output: 3 weight_filler {{ type: "xavier" }} }} }}
        layer {{ name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "target" top: "loss" }} }}
        base_lr: 0.05 momentum: 0.9 iter_size: 2 lr_policy: "fixed" max_iter: 20 random_seed: 7
        snapshot_prefix: "{folder}/source" snapshot_after_train: false"""


Trajectory = tuple[list[float], dict[str, list[np.ndarray]]]


def list_params(solver: Any) -> dict[str, list[np.ndarray]]:
    """Return the solver's parameters by layer, in Caffe's order."""
    from caffejax.core.parallel.global_arrays import gather_to_host  # imports JAX

    variables = gather_to_host(solver.variables)
    return {
        layer.key: [np.asarray(p.array(*variables)) for p in layer.params if p.spec.learnable]
        for layer in solver.net.graph.layers
        if layer.key in variables.params
    }


def train(
    text: str, devices: int | None, parallel: Mapping[str, Any], iterations: int = 50, resume: str = "", **options: Any
) -> Trajectory:
    """Train for `iterations`; return the losses and the final parameters. `devices=None` uses all devices."""
    import jax

    import caffejax

    device_options: Any = {"device": jax.local_devices()[0]} if devices == 1 else {"devices": devices}
    solver = caffejax.Solver(text, parallel=caffejax.Parallel(**parallel), **device_options, **options)
    losses: list[float] = []
    solver.callbacks.append(lambda s: losses.append(s.smoothed_loss))
    if resume:
        solver.restore(resume)
    solver.step(iterations)
    params = list_params(solver)
    solver.close()
    return losses, params


def read_full_state(
    text: str, devices: int | None, parallel: Mapping[str, Any], iterations: int = 0, resume: str = ""
) -> dict[str, np.ndarray]:
    """Return all arrays of a solver's state by name after this many iterations, and its position in the data."""
    import jax

    import caffejax
    from caffejax.core.parallel.global_arrays import gather_to_host

    device_options: Any = {"device": jax.local_devices()[0]} if devices == 1 else {"devices": devices}
    solver = caffejax.Solver(text, parallel=caffejax.Parallel(**parallel), **device_options)
    if resume:
        solver.restore(resume)
    solver.step(iterations)
    state = gather_to_host(solver.train_state.replace(key=jax.random.key_data(solver.train_state.key)))
    result = {jax.tree_util.keystr(path): np.asarray(x) for path, x in jax.tree_util.tree_leaves_with_path(state)}
    result["the data"] = np.array([repr(solver.loader.get_state())])
    solver.close()
    return result


def assert_equal(actual: Trajectory, expected: Trajectory, tolerance: float = 1e-5) -> None:
    """Compare losses and parameters with a tolerance relative to their size."""
    np.testing.assert_allclose(actual[0], expected[0], rtol=tolerance, atol=tolerance)
    assert actual[1].keys() == expected[1].keys()
    for key, blobs in actual[1].items():
        for blob, expected_blob in zip(blobs, expected[1][key], strict=True):
            np.testing.assert_allclose(
                blob, expected_blob, rtol=0, atol=tolerance * max(1.0, np.abs(expected_blob).max()), err_msg=key
            )
