"""Arguments of nets, and the messages about invalid ones."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax import CaffejaxError, DataError, GraphError, Net, Solver, Variables, WeightsError
from caffejax.export import make_inference_model

CONFIGS = Path(__file__).parents[3] / "configs"
LENET = CONFIGS / "lenet" / "train_val.prototxt"
KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def lenet() -> Net:
    return Net(LENET, "TRAIN")


@pytest.fixture(scope="module")
def variables(lenet: Net) -> Variables:
    return lenet.init(KEY)


def make_batch(*shape: int, dtype: Any = np.float32) -> dict[str, Any]:
    shape = shape or (2, 1, 28, 28)
    return {"data": np.zeros(shape, dtype), "label": np.zeros(shape[0], np.float32)}


UNEXPECTED_SHAPES_SCRIPT = """
import sys

import jax
import numpy as np

from caffejax import LayerError, Net

net = Net(sys.argv[1], "TRAIN", kernels=sys.argv[2])
params, state = net.init(jax.random.key(0))
run = lambda params, x: net.loss(params, state, {"data": x, "label": np.zeros(len(x), np.float32)})[0]
for shape in ((64, 1, 32, 32), (2, 1, 32, 32), (1, 1, 32, 32), (2, 1, 20, 20), (2, 3, 28, 28)):
    for function in (run, jax.jit(run), jax.grad(run), net.jit(jax.grad(run))):
        try:
            function(params, np.ones(shape, np.float32))
        except LayerError as error:
            print(error)
"""


@pytest.mark.long
@pytest.mark.parametrize("kernels", ["fast", pytest.param("reference", marks=pytest.mark.long)])
def test_errors_about_unexpected_shapes_name_the_needed_shapes(kernels: str) -> None:
    command = [sys.executable, "-c", UNEXPECTED_SHAPES_SCRIPT, LENET, kernels]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr  # neither a crash nor another error
    data = f"{LENET}: the input 'data' has shape {{}}, but the net was built for (64, 1, 28, 28)"
    data += f"; pass an array of shape (N, 1, 28, 28)\n{LENET}: "
    ip1 = "layer 'ip1' (InnerProduct): blob 0 has shape (500, 800), but a bottom of shape "
    conv1 = "layer 'conv1' (Convolution): blob 0 has shape (20, 1, 5, 5), but a bottom of shape "
    expected_messages = [
        data.format((64, 1, 32, 32)) + f"{ip1}(64, 50, 5, 5) needs shape (500, 1250)",
        data.format((2, 1, 32, 32)) + f"{ip1}(2, 50, 5, 5) needs shape (500, 1250)",
        data.format((1, 1, 32, 32)) + f"{ip1}(1, 50, 5, 5) needs shape (500, 1250)",
        data.format((2, 1, 20, 20)) + f"{ip1}(2, 50, 2, 2) needs shape (500, 200)",
        data.format((2, 3, 28, 28)) + f"{conv1}(2, 3, 28, 28) needs shape (20, 3, 5, 5)",
    ]
    assert run.stdout == "".join(f"{line}\n" * 4 for line in expected_messages)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            make_batch(dtype=np.uint8),
            "layer 'conv1' (Convolution): bottom 0 ('data') has dtype uint8, but the layer computes in floating",
        ),
        (
            make_batch(dtype=bool),
            "layer 'conv1' (Convolution): bottom 0 ('data') has dtype bool, but the layer computes in floating",
        ),
        (
            make_batch(dtype=complex),
            "layer 'conv1' (Convolution): bottom 0 ('data') has dtype complex64, but the layer computes in floating",
        ),
        (
            {**make_batch(), "data": jnp.zeros((2, 1, 28, 28), jnp.bfloat16)},
            "layer 'conv1' (Convolution): cannot take a bottom of shape (2, 1, 28, 28) bfloat16: params and inputs",
        ),
        (
            {"data": make_batch()["data"]},
            "the input for blob 'label' is missing; pass it, or if the requested blobs do not need it, use "
            "net.for_inference(blobs)",
        ),
        (
            {"data": make_batch()["data"], "lable": 0},
            f"the input for blob 'label' is missing\n{LENET}: the net has no input 'lable' in phase TRAIN; its "
            "inputs are 'data', 'label'; did you mean 'label'?",
        ),
        (
            {"dta": make_batch()["data"]},
            f"the input for blob 'data' is missing\n{LENET}: the input for blob 'label' is missing\n"
            f"{LENET}: the net has no input 'dta' in phase TRAIN; its inputs are 'data', 'label'; did you mean 'data'?",
        ),
        (
            make_batch() | {"data": "zeros"},
            "the input for blob 'data' must be an array of numbers, not a value of type str",
        ),
        (
            make_batch() | {"data": np.array(["0"])},
            "the input for blob 'data' must be an array of numbers, not of dtype <U1",
        ),
        (make_batch() | {"data": None}, "the input for blob 'data' must be an array of numbers, not None"),
        (
            make_batch() | {"data": [[1], [1, 2]]},
            "the input for blob 'data' must be an array of numbers, not a value of",
        ),
        (
            make_batch() | {"label": KEY},
            "the input for blob 'label' must be an array of numbers, not of dtype key<fry>",
        ),
        (make_batch()["data"], "inputs must be a dict {blob: array}, not a value of type ndarray"),
    ],
)
def test_errors_about_invalid_inputs_name_them(lenet: Net, variables: Variables, inputs: Any, message: str) -> None:
    for run in (lenet.apply, lenet.loss):
        with pytest.raises(CaffejaxError) as exc_info:
            run(*variables, inputs)
        assert str(exc_info.value).startswith(f"{LENET}: {message}")


LOSS_IN_TRAIN = """
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 2 } }
layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "ip" top: "loss" include { phase: TRAIN } }
"""


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (Net(LOSS_IN_TRAIN), "this net has no loss in phase TEST; build it with phase='TRAIN'"),
        (Net(LOSS_IN_TRAIN).with_phase("TRAIN"), "this net has no loss in phase TRAIN; build it with phase='TRAIN'"),
        (
            Net(LOSS_IN_TRAIN.replace("EuclideanLoss", "NoSuchLoss")),
            "this net has no loss in phase TEST; add a loss layer, or set a loss_weight",
        ),
        (
            Net(LOSS_IN_TRAIN.replace("include {", "loss_weight: 0 include {"), "TRAIN"),
            "this net has no loss in phase TRAIN; add a loss layer, or set a loss_weight",
        ),
    ],
)
def test_a_net_without_a_loss_has_no_gradient(net: Net, message: str) -> None:
    variables, inputs = net.init(KEY), {"x": np.ones((2, 3), np.float32)}
    for run in (net.loss, jax.grad(net.loss, has_aux=True)):
        with pytest.raises(GraphError) as exc_info:
            run(*variables, inputs)
        assert message in str(exc_info.value)
    assert net.loss(*variables, inputs, required=False)[0] == 0


@pytest.mark.parametrize("label", [10, -1])
def test_a_label_that_is_no_class_is_refused_outside_of_traced_code(
    lenet: Net, variables: Variables, label: float
) -> None:
    invalid_batch = make_batch() | {"label": jnp.array([0, label])}
    for run in (lenet.loss, jax.value_and_grad(lenet.loss, has_aux=True)):
        with pytest.raises(DataError, match=r"'loss' \(SoftmaxWithLoss\): blob 'label' holds .* in row 1 .* 0 to 9"):
            run(*variables, invalid_batch)
    assert np.isnan(lenet.forward(*variables, invalid_batch)[0]["loss"])


def test_unknown_inputs_are_refused(lenet: Net, variables: Variables) -> None:
    """In nets and frozen nets; inputs of the whole net are known to the nets of its parts, which do not need them."""
    part, frozen = lenet.for_inference(["ip2"]), lenet.freeze(variables)
    for run, batch in (
        (lambda x: lenet.loss(*variables, x), make_batch()),
        (lambda x: jax.jit(lenet.apply)(*variables, x), make_batch()),
        (lambda x: part.apply(*variables, x), {"data": make_batch()["data"]}),
        (frozen, {"data": make_batch()["data"]}),
    ):
        run(batch)
        for name, remedy in (("dta", "; did you mean 'data'?"), ("conv1", ""), ("weight", "")):
            with pytest.raises(GraphError) as exc_info:
                run(batch | {name: np.zeros(2)})
            assert f"the net has no input '{name}' in phase" in str(exc_info.value)
            assert str(exc_info.value).endswith(remedy)
    expected = part.apply(*variables, {"data": make_batch()["data"]})[0]["ip2"]
    for result in (part.apply(*variables, make_batch())[0], frozen(make_batch())):
        np.testing.assert_allclose(result["ip2"], expected, atol=1e-6)


def test_unknown_layers_in_params_are_refused(lenet: Net, variables: Variables) -> None:
    """Layers of the whole net are known to the nets of its parts, which do not need them."""
    params, state = variables
    part, inputs = lenet.for_inference(["ip1"]), {"data": make_batch()["data"]}
    assert part.apply(params, state, inputs)[0]["ip1"].shape == (2, 500)
    with pytest.raises(WeightsError, match=r"params: the net has no layer 'cnv1'; did you mean 'conv1'\?"):
        lenet.loss({**params, "cnv1": params["conv1"]}, state, make_batch())
    with pytest.raises(WeightsError, match="state: the net has no layer 'bn'"):
        part.apply(params, {"bn": {"mean": np.zeros(3, np.float32)}}, inputs)
    with pytest.raises(WeightsError, match="the net has no layer 'cnv1'"):
        lenet.freeze(Variables({**params, "cnv1": params["conv1"]}, state))


@pytest.mark.parametrize(
    ("tree", "layer", "name", "message"),
    [
        (
            "params",
            "ip",
            "weights",
            "(InnerProduct): 'weights' in params is unknown; did you mean 'weight'?",
        ),
        ("params", "ip", "lora", "layer 'ip' (InnerProduct): 'lora' in params is unknown; the layer has 'weight'"),
        ("params", "bn", "mean", "layer 'bn' (BatchNorm): 'mean' in params is unknown; the layer has none"),
        ("state", "bn", "men", "layer 'bn' (BatchNorm): 'men' in state is unknown; did you mean 'mean'?"),
        ("params", "relu", "weight", "layer 'relu' (ReLU): 'weight' in params is unknown"),
        ("params", "phases", "weight", None),  # in TRAIN it has them
        ("state", "ip", "carried_hidden", None),  # may be carried in one phase
    ],
)
def test_unknown_arrays_of_a_layer_are_refused(tree: str, layer: str, name: str, message: str | None) -> None:
    """In nets, frozen and written nets; arrays that the layer may have in another phase are passed over."""
    net = Net("""
    layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
    layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip"
      inner_product_param { num_output: 4 bias_term: false } }
    layer { name: "bn" type: "BatchNorm" bottom: "ip" top: "bn" }
    layer { name: "relu" type: "ReLU" bottom: "bn" top: "bn" }
    layer { name: "phases" type: "ReLU" bottom: "bn" top: "y" loss_weight: 1 include { phase: TEST } }
    layer { name: "phases" type: "PReLU" bottom: "bn" top: "y" include { phase: TRAIN } }
    """)
    trees = net.init(KEY)._asdict()
    blobs = trees[tree].get(layer, {})
    variables = Variables(**trees | {tree: trees[tree] | {layer: {**blobs, name: np.zeros(1, np.float32)}}})
    x = np.ones((2, 3), np.float32)
    for run in (
        lambda: net.apply(*variables, {"x": x}),
        lambda: jax.jit(net.apply)(*variables, {"x": x}),
        lambda: net.loss(*variables, {"x": x}),
        lambda: net.freeze(variables),
    ):
        if message is None:
            run()
            continue
        with pytest.raises(WeightsError) as exc_info:
            run()
        (problem,) = exc_info.value.problems
        assert message in str(problem)
        assert "remove this array" in str(problem)


def test_params_and_state_in_the_wrong_order_are_said_to_be_swapped() -> None:
    text = """
    layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 } } }
    layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 4 } }
    layer { name: "bn" type: "BatchNorm" bottom: "ip" top: "bn" }
    """
    net = Net(text)
    params, state = net.init(KEY)
    with pytest.raises(WeightsError, match="params and state are swapped") as exc_info:
        net.apply(state, params, {"data": np.ones((2, 3), np.float32)})
    assert len(exc_info.value.problems) == 1


def test_lists_of_numbers_are_arrays(lenet: Net, variables: Variables) -> None:
    expected = lenet.loss(*variables, make_batch())[0]
    assert lenet.loss(*variables, {name: x.tolist() for name, x in make_batch().items()})[0] == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"blobs": ["los"]}, "blobs: no blob 'los' in the net; did you mean 'loss'?"),
        ({"blobs": "loss"}, 'blobs must be a tuple of blob names, such as ("loss",), not a string'),
        ({"perturbations": {"conv9": np.zeros(1)}}, "perturbations: no blob 'conv9' in the net; did you mean 'conv2'?"),
        ({"key": 3}, "a random key must be a JAX key, such as jax.random.key(0), not a value of type int"),
    ],
)
def test_unknown_blobs_and_wrong_keys_are_refused(
    lenet: Net, variables: Variables, arguments: dict[str, Any], message: str
) -> None:
    for run in (lenet.loss, lenet.apply)[: 1 if "perturbations" in arguments else 2]:
        with pytest.raises(CaffejaxError) as exc_info:
            run(*variables, make_batch(), **arguments)
        assert message in str(exc_info.value)


def test_typed_and_old_keys_initialize_the_same_params(lenet: Net, variables: Variables) -> None:
    old_key_variables = lenet.init(jax.random.PRNGKey(0))
    np.testing.assert_array_equal(old_key_variables.params["ip2"]["weight"], variables.params["ip2"]["weight"])
    with pytest.raises(CaffejaxError, match=r"such as jax.random.key\(0\), not a value of type int"):
        lenet.init(0)  # type: ignore[arg-type]


def test_donated_params_are_reported_with_a_remedy(lenet: Net, variables: Variables) -> None:
    params = jax.tree.map(jnp.copy, variables.params)
    jax.jit(lambda tree: jax.tree.map(lambda x: x + 1, tree), donate_argnums=0)(params)
    with pytest.raises(WeightsError, match=r"arrays of params were deleted.*solver\.variables") as exc_info:
        lenet.loss(params, variables.state, make_batch())
    assert len(exc_info.value.problems) == 1


def test_all_problems_of_params_are_reported(lenet: Net, variables: Variables) -> None:
    params: Any = {name: blobs for name, blobs in variables.params.items() if name != "ip2"}
    params |= {
        "conv1": {"weight": params["conv1"]["weight"]},
        "conv2": {"weight": params["conv2"]["weight"], "bias": jnp.zeros(50, int)},
    }
    params["ip1"] = {"weight": jnp.zeros((500, 801)), "bias": "bias"}
    with pytest.raises(WeightsError) as exc_info:
        lenet.loss(params, variables.state, make_batch())
    assert str(exc_info.value).replace(f"{LENET}: layer ", "").splitlines() == [
        "'conv1' (Convolution): 'bias' in params is missing, which has 'weight'; pass the arrays that Net.init or "
        "load_weights returns, where its shape is (20,)",
        "'conv2' (Convolution): 'bias' in params must be floating point, not int32",
        "'ip1' (InnerProduct): 'weight' in params must be of shape (500, 800), not (500, 801)",
        "'ip1' (InnerProduct): 'bias' in params must be an array, not a value of type str",
        "'ip2' (InnerProduct): 'weight' in params is missing; pass the arrays that Net.init or load_weights returns, "
        "where its shape is (10, 500)",
        "'ip2' (InnerProduct): 'bias' in params is missing; pass the arrays that Net.init or load_weights returns, "
        "where its shape is (10,)",
    ]


def test_errors_about_numbered_blobs_name_the_blobs(lenet: Net, variables: Variables) -> None:
    params: Any = {name: dict(enumerate(blobs.values())) for name, blobs in variables.params.items()}
    with pytest.raises(WeightsError) as exc_info:
        lenet.loss(params, variables.state, make_batch())
    assert "layer 'conv1' (Convolution): 'weight' in params is missing, which has 0, 1;" in str(exc_info.value)


def test_export_takes_params_and_state_as_one_argument(lenet: Net, variables: Variables) -> None:
    make: Any
    for make in (lenet.freeze, lambda *pair: make_inference_model(lenet, *pair)):
        for arguments in (variables, (variables.params,)):
            with pytest.raises(WeightsError, match="params and state must be passed as one argument"):
                make(*arguments)
    with pytest.raises(WeightsError, match=r"'ip2' .*: 'bias' in params is missing"):
        make_inference_model(lenet, variables._replace(params={**variables.params, "ip2": {}}))


def test_variables_passed_as_params_or_missing_state_are_rejected(lenet: Net, variables: Variables) -> None:
    with pytest.raises(WeightsError, match=r"params must be .*, not .* Variables; pass its fields .params and"):
        lenet.loss(variables, variables.state, make_batch())  # type: ignore[arg-type]
    with pytest.raises(WeightsError, match=r"state must be a dict \{layer: blobs\}, not None"):
        lenet.loss(variables.params, None, make_batch())  # type: ignore[arg-type]


def test_statistics_and_recurrent_state_belong_to_the_state() -> None:
    net = Net("""
        layer { name: "x" type: "Input" top: "x" top: "c" input_param { shape { dim: 4 dim: 2 dim: 3 } shape { dim: 4
          dim: 2 } } }
        layer { name: "norm" type: "BatchNorm" bottom: "x" top: "x" }
        layer { name: "lstm" type: "LSTM" bottom: "x" bottom: "c" top: "y" recurrent_param { num_output: 5 } }
    """)
    params, state = net.init(KEY)
    with pytest.raises(WeightsError) as exc_info:
        net.apply(
            params,
            {"norm": {name: state["norm"][name] for name in ("mean", "variance")}},
            {"x": np.zeros((4, 2, 3)), "c": np.zeros((4, 2))},
        )
    assert [p.message.split(";")[0] for p in exc_info.value.problems] == [
        "'scale_factor' in state is missing, which has 'mean', 'variance'",
        "'carried_hidden' in state is missing",
        "'carried_cell' in state is missing",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"phase": "train"}, 'phase must be "TRAIN" or "TEST", not "train"'),
        ({"phase": 0}, 'phase must be "TRAIN" or "TEST", not 0'),
        ({"level": "1"}, 'level must be an integer, not "1"'),
        ({"stages": "deploy"}, 'stages must be a list of names, not "deploy"'),
        ({"stages": [1]}, "stages must be a list of names, not [1]"),
        ({"kernels": "quick"}, 'kernels must be "fast" or "reference", not "quick"'),
        ({"backward": None}, 'backward must be "autodiff" or "rules", not None'),
        ({"remat": True}, 'remat must be "none" or "auto", not True'),
        ({"memory_limit": "8GiB"}, 'memory_limit must be a number of bytes, not "8GiB"'),
        ({"workers": -1, "seed": 0.5}, "seed must be an integer, not 0.5\nworkers must be an integer of at least 0"),
        ({"skip_bad": "no"}, 'skip_bad must be True or False, not "no"'),
        (
            {"precision": "half"},
            'precision must be "float32" or "tf32" or "bfloat16", not "half" (half precision is bfloat16',
        ),
    ],
)
def test_wrong_options_of_a_net_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(CaffejaxError) as exc_info:
        Net(LENET, **options)
    assert str(exc_info.value).startswith(message)


def test_a_net_is_a_path_a_text_or_a_message() -> None:
    with pytest.raises(CaffejaxError, match="pass a path, prototxt or a message, not a value of type int"):
        Net(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "cpu"}, 'device must be a JAX device, such as jax.devices()[0], not "cpu"'),
        ({"weights": 3}, "weights must be a path or a list of paths, not 3"),
        ({"weights": "lenet.caffemodel"}, "lenet.caffemodel: no such file; check the path and the working directory"),
        ({"keep_last": "3"}, 'keep_last must be None or an integer of at least 1, not "3"'),
        ({"steps_per_dispatch": 0}, "steps_per_dispatch must be an integer of at least 1, not 0"),
        ({"seed": "a"}, 'seed must be None or an integer, not "a"'),
        ({"remat": "all"}, 'remat must be "none" or "auto", not "all"'),
    ],
)
def test_wrong_options_of_a_solver_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(CaffejaxError) as exc_info:
        Solver(f'net: "{CONFIGS}/digits/lenet_train_test.prototxt" base_lr: 0.1 lr_policy: "fixed"\n', **options)
    assert str(exc_info.value) == message


# two readers of a blob, so that a Split comes in; a layer that is random; statistics


def test_blobs_may_be_named_in_a_list(lenet: Net, variables: Variables) -> None:
    blobs, _ = lenet.forward(*variables, make_batch(), key=KEY, blobs=["ip2"])
    assert list(blobs) == ["ip2"]


def test_freeze_takes_params_and_state_as_one_argument(lenet: Net, variables: Variables) -> None:
    for args in (variables, (variables.params,)):
        with pytest.raises(WeightsError, match=r"net\.freeze\(\(params, state\)\)"):
            lenet.freeze(*args)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("batch", "axis", "message"),
    [
        ("a", 0, "batch must be an integer of at least 0, not 'a'"),
        (2.0, 0, "batch must be an integer of at least 0, not 2.0"),
        (True, 0, "batch must be an integer of at least 0, not True"),
        (-1, 0, "batch must be an integer of at least 0, not -1"),
        (2, -1, "axis must be an integer of at least 0, not -1"),
        (2, None, "axis must be an integer of at least 0, not None"),
        (2, 4, r"input 'data' of shape \(64, 1, 28, 28\) has no axis 4"),
    ],
)
def test_wrong_batch_sizes_are_refused(lenet: Net, batch: Any, axis: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        lenet.with_batch(batch, axis)


def test_a_batch_size_may_be_a_numpy_integer(lenet: Net) -> None:
    assert lenet.with_batch(np.int64(3)).graph.blobs["data"].shape == (3, 1, 28, 28)


def test_a_blob_of_the_other_phase_is_named_with_its_phase(lenet: Net, variables: Variables) -> None:
    for ask in (
        lambda: lenet.for_inference(["prob"]),
        lambda: lenet.freeze(variables, ["prob"]),
        lambda: lenet.apply(*variables, make_batch(), blobs=["prob"]),
    ):
        with pytest.raises(
            GraphError, match="no blob 'prob' in the net; in phase TEST it has: build it with phase='TE"
        ):
            ask()
    assert Net(LENET, "TEST").for_inference(["prob"]).outputs == ("prob",)


RECURRENT = """
layer { name: "in" type: "Input" top: "x" top: "cont"
  input_param { shape { dim: 3 dim: 2 dim: 4 } shape { dim: 3 dim: 2 } } }
layer { name: "lstm" type: "LSTM" bottom: "x" bottom: "cont" top: "h"
  recurrent_param { num_output: 5 weight_filler { type: "gaussian" std: 0.5 } } }
"""


def test_recurrent_nets_name_with_batch_for_another_number_of_sequences() -> None:
    net = Net(RECURRENT)
    params, state = net.init(KEY)
    x, cont = jax.random.normal(KEY, (3, 2, 4)), jnp.ones((3, 2))

    def run(net: Net, state: Any, x: Any, cont: Any) -> Any:
        return net.apply(params, state, {"x": x, "cont": cont})[0]["h"]

    with pytest.raises(
        CaffejaxError, match=r"net\.with_batch\(1, axis=1\), and take the state of its init"
    ) as exc_info:
        jax.vmap(lambda x, cont: run(net, state, x, cont), 1)(x[:, :, None], cont[:, :, None])
    assert "with_batch" not in str(exc_info.value.problems[-1])
    of_one = net.with_batch(1, axis=1)
    _, state_of_one = of_one.init(KEY)
    each = jax.vmap(lambda x, cont: run(of_one, state_of_one, x, cont), 1, 1)(x[:, :, None], cont[:, :, None])
    np.testing.assert_allclose(each[:, :, 0], run(net, state, x, cont), rtol=1e-5, atol=1e-6)


def test_one_key_is_needed_not_several(lenet: Net) -> None:
    for keys in (jax.random.split(KEY, 2), jax.random.split(jax.random.PRNGKey(0), 2)):
        with pytest.raises(CaffejaxError, match=r"one random key is needed.*jax\.vmap\(net\.init\)\(keys\)"):
            lenet.init(keys)
    two = jax.vmap(lenet.init)(jax.random.split(KEY, 2))
    assert all(array.shape[0] == 2 for array in jax.tree.leaves(two))


def test_a_key_may_be_the_fourth_argument_of_every_pass(lenet: Net, variables: Variables) -> None:
    expected = lenet.apply(*variables, make_batch(), key=KEY)[0]["loss"]
    for run in (lenet.apply, lenet.forward, jax.jit(lenet.apply)):
        np.testing.assert_allclose(run(*variables, make_batch(), KEY)[0]["loss"], expected, rtol=1e-6)


def test_one_hot_labels_are_told_to_become_class_numbers(lenet: Net, variables: Variables) -> None:
    for run in (lenet.loss, jax.jit(lenet.loss)):
        with pytest.raises(CaffejaxError, match=r"'label' has shape \(2, 10\).*pass jnp\.argmax\(labels, axis=-1\)"):
            run(*variables, make_batch() | {"label": np.eye(10, dtype=np.float32)[:2]})
    with pytest.raises(CaffejaxError, match=r"'label' has shape \(\), .*pass an array with 1 axis, of which"):
        lenet.loss(*variables, make_batch() | {"label": np.float32(1)})


def test_the_text_of_a_model_must_not_be_empty() -> None:
    for text in ("", " \n"):
        with pytest.raises(CaffejaxError, match="the text is empty; give the path of a prototxt, or its text"):
            Net(text)


@pytest.mark.parametrize("kernels", ["fast", "reference"])
@pytest.mark.parametrize("name", ["lenet", "googlenet", "lstm"])
def test_rank_promotion_may_be_forbidden_in_the_code_around_a_net(name: str, kernels: Any) -> None:
    """Building, losses and first and second derivatives, up to the lowering, which traces the forms for CPUs."""
    with jax.numpy_rank_promotion("raise"):
        net = Net(CONFIGS / name / "train_val.prototxt", "TRAIN", kernels=kernels)
        variables, inputs = jax.eval_shape(net.init, KEY), {blob: net.graph.blobs[blob] for blob in net.input_names}
        gradient = jax.grad(lambda params, state, inputs: net.loss(params, state, inputs, KEY)[0])
        jax.jit(gradient).lower(*variables, inputs)

        def curvature(params: Any, state: Any, inputs: Any) -> Any:
            return jax.jvp(lambda p: gradient(p, state, inputs), (params,), (params,))[1]

        if name != "googlenet":
            jax.jit(curvature).lower(*variables, inputs)
        with pytest.raises(ValueError, match="rank_promotion"):
            jnp.zeros((2, 2)) + jnp.zeros(2)
