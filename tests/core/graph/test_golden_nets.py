"""Built nets, and the values of one forward and backward pass, compared with Caffe's recordings."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax.base.errors import CaffejaxError
from caffejax.core.graph import Graph
from caffejax.core.program.net import Net
from caffejax.core.schema import read_net

GOLDEN = Path(__file__).parents[2] / "golden" / "nets"

# diffs that Caffe gets wrong: HingeLoss works in its bottom's diff during the forward pass, and Split adds that to
# the other branches' gradients though the loss has weight 0 and no backward pass
OVERWRITTEN_DIFFS = {"loss_weights": {"a", "a/0", "a/1"}}


def load_recorded_cases() -> dict[str, Any]:
    names = [c["case"] for c in json.loads((GOLDEN / "index.json").read_text())["nets"]]
    return {name: json.loads((GOLDEN / f"{name}.json").read_text()) for name in names}


CASES = load_recorded_cases()


def make_run_params(key: str) -> list[Any]:
    return [
        pytest.param(name, run, id=f"{name}-{i}-{run['phase']}")
        for name, case in CASES.items()
        for i, run in enumerate(case["runs"])
        if key in run
    ]


def load_net(name: str, run: dict[str, Any]) -> Net:
    path = GOLDEN / f"{name}.prototxt"
    return Net(path, run["phase"], level=run["level"], stages=run["stages"])


def describe(graph: Graph) -> dict[str, Any]:
    """Describe a graph in the format of the recording."""
    unique_slots = [p.slot for p in graph.unique_params]
    params = graph.params
    return {
        "name": graph.name,
        "phase": graph.phase,
        "layers": [
            {
                "name": layer.name,
                "type": layer.type.name,
                "bottoms": list(layer.bottoms),
                "tops": list(layer.tops),
                "need_backward": layer.need_backward,
                "bottom_need_backward": list(layer.bottom_need_backward),
                "loss_weights": list(layer.loss_weights),
                "params": [list(p.spec.shape) for p in layer.params],
                "param_propagate_down": [p.need_backward for p in layer.params],
                "inserted_split": layer.is_inserted_split,
            }
            for layer in graph.layers
        ],
        "blobs": [
            {"name": name, "shape": list(blob.shape), "loss_weight": graph.loss_weights.get(name, 0)}
            for name, blob in graph.blobs.items()
        ],
        "inputs": list(graph.input_layer_tops),
        "outputs": list(graph.outputs),
        "net_params": [
            {
                "layer": graph.layer(p.slot.layer).name,
                "index": p.index,
                "display_name": p.shared_name or str(p.index),
                "owner": -1 if p.is_owner else [q.slot for q in params].index(p.owner),
                "learnable": unique_slots.index(p.owner),
                "lr_mult": pytest.approx(p.lr_mult),
                "decay_mult": pytest.approx(p.decay_mult),
                "shape": list(p.spec.shape),
            }
            for p in params
        ],
        "num_learnable": len(unique_slots),
    }


def remove_flags(built: dict[str, Any]) -> dict[str, Any]:
    """Return the recording without `has_lr_mult` and `has_decay_mult`, which only reflect how Caffe stores defaults."""
    params = [{k: v for k, v in p.items() if k not in ("has_lr_mult", "has_decay_mult")} for p in built["net_params"]]
    return {**built, "net_params": params}


@pytest.mark.parametrize(("name", "run"), make_run_params("built"))
def test_builds_what_caffe_builds(name: str, run: dict[str, Any]) -> None:
    assert describe(load_net(name, run).graph) == remove_flags(run["built"])


@pytest.mark.parametrize(("name", "run"), make_run_params("error"))
def test_refuses_what_caffe_refuses(name: str, run: dict[str, Any]) -> None:
    with pytest.raises(CaffejaxError) as exc_info:
        load_net(name, run)
    message = str(exc_info.value)
    assert f"{name}.prototxt" in message
    assert any(layer.name in message for layer in read_net(GOLDEN / f"{name}.prototxt").layer)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "values_error" in case])
def test_refuses_to_run_backward_where_caffe_does(name: str) -> None:
    net = load_net(name, CASES[name]["runs"][0])
    with pytest.raises(CaffejaxError, match="backward"):
        net.graph.check_backward()


@pytest.mark.parametrize(("backward", "kernels"), [("autodiff", "fast"), ("rules", "fast"), ("autodiff", "reference")])
@pytest.mark.parametrize("name", [name for name in CASES if (GOLDEN / f"{name}.npz").exists()])
def test_values_and_diffs_equal_caffe(name: str, backward: Any, kernels: Any) -> None:
    values = dict(np.load(GOLDEN / f"{name}.npz"))

    def select_arrays(prefix: str) -> dict[str, np.ndarray]:
        return {k.removeprefix(f"{prefix}/"): v for k, v in values.items() if k.startswith(f"{prefix}/")}

    net = Net(GOLDEN / f"{name}.prototxt", CASES[name]["runs"][0]["phase"], backward=backward, kernels=kernels)
    params, state = net.init(jax.random.key(0))
    params = net.map_params(lambda p: values[f"param/{p.slot.layer}/{p.index}"] if p.spec.learnable else None)
    perturbations = {b: jnp.zeros(net.graph.blobs[b].shape) for b in select_arrays("blobdiff")}

    @jax.jit
    def run(params: Any, perturbations: Any) -> Any:
        def loss(params: Any, perturbations: Any) -> Any:
            blobs = select_arrays("blob")
            inputs, key = select_arrays("in"), jax.random.key(0)
            return net.loss(params, state, inputs, key, blobs=blobs, perturbations=perturbations, required=False)

        return jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(params, perturbations)

    (loss, outputs), (param_diffs, blob_diffs) = run(params, perturbations)
    tolerances = {"rtol": 1e-5, "atol": 1e-6}
    np.testing.assert_allclose(loss, values["total_loss"], **tolerances)
    for blob, expected in select_arrays("blob").items():
        np.testing.assert_allclose(outputs.blobs[blob], expected, **tolerances, err_msg=blob)
    overwritten_diffs = OVERWRITTEN_DIFFS.get(name, set())
    for blob, expected in select_arrays("blobdiff").items():
        if blob in overwritten_diffs:
            continue
        np.testing.assert_allclose(blob_diffs[blob], expected, **tolerances, err_msg=f"diff of {blob}")
    for slot, expected in select_arrays("paramdiff").items():
        if slot in overwritten_diffs:
            continue
        layer, index = slot.rsplit("/", 1)
        owner = next(p for p in net.graph.layer(layer).params if p.index == int(index)).owner
        np.testing.assert_allclose(
            param_diffs[owner.layer][owner.name].reshape(expected.shape), expected, **tolerances, err_msg=slot
        )
