"""Nets exported as flax source give the same results where caffejax cannot be imported."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import flax_worker
import jax
import numpy as np
import pytest
from flax_nets import (
    LAYERS,
    NETS,
    SHARED,
    input_layer,
    layer,
    make_one_layer_net,
    make_residual_net,
    make_subject,
)

from caffejax import CaffejaxError, Net
from caffejax.export import InferenceModel, make_inference_model
from caffejax.export.flax import write_flax
from caffejax.export.flax.emit_context import FLAX
from export.random_params import draw_variables
from fresh_processes import spawn_jax_process
from golden_cases import ACCEPTED_CASES, format_case_id

CASES = {name: make_one_layer_net(name) for name in LAYERS} | NETS
TOLERANCE = 1e-5  # of the largest number: float32, added up in another order


@pytest.fixture(scope="module")
def flax_process() -> Iterator[ProcessPoolExecutor]:
    """A process for generated source, which may import caffejax; `fresh_process` may not."""
    with spawn_jax_process() as pool:
        yield pool


@pytest.fixture(scope="module")
def source_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All cases, each in a folder of its number."""
    folder = tmp_path_factory.mktemp("written")
    for k, text in enumerate(CASES.values()):
        write_flax(make_subject(text), folder / f"case_{k}")
    return folder


def channels_last(array: Any) -> np.ndarray:
    return np.moveaxis(np.asarray(array), 1, -1) if array.ndim > 2 else np.asarray(array)


def draw_batches(subject: InferenceModel, *sizes: int) -> list[dict[str, np.ndarray]]:
    """Return inputs with these numbers of rows."""
    random = np.random.default_rng(1)
    return [
        {name: random.normal(size=(n, *like.shape[1:])).astype(np.float32) for name, like in subject.inputs.items()}
        for n in sizes
    ]


def assert_equal(
    subject: InferenceModel,
    batches: list[dict[str, np.ndarray]],
    folder: Path,
    pool: ProcessPoolExecutor,
    tolerance: float = TOLERANCE,
) -> float:
    """Compare the results of written source in another process with the subject's; return the largest error."""
    inputs = [[channels_last(array) for array in batch.values()] for batch in batches]
    actual = pool.submit(flax_worker.compute_outputs, str(folder), inputs).result()
    largest = 0.0
    for batch, outputs in zip(batches, actual, strict=True):
        reference = subject.run(batch)
        for name, array in zip(subject.outputs, outputs, strict=True):
            expected = channels_last(reference[name])
            assert array.shape == expected.shape, name
            scale = max(float(np.max(np.abs(expected))), 1e-30)
            largest = max(largest, float(np.max(np.abs(array - expected))) / scale)
            np.testing.assert_allclose(array, expected, rtol=0, atol=tolerance * scale, err_msg=name)
    return largest


@pytest.mark.parametrize("name", CASES)
def test_outputs_of_the_source_equal_the_nets(
    name: str, source_folder: Path, flax_process: ProcessPoolExecutor
) -> None:
    subject = make_subject(CASES[name])
    folder = source_folder / f"case_{list(CASES).index(name)}"
    sizes = (2, 5) if name in NETS else (5,)  # the first is what it was built for
    assert_equal(subject, draw_batches(subject, *sizes), folder, flax_process)


def test_embed_gives_zeros_for_padding(tmp_path: Path, flax_process: ProcessPoolExecutor) -> None:
    """The index -1 of nnx.Embed would be the last row."""
    embed = layer("Embed", "e", "x", "e", "embed_param { num_output: 2 input_dim: 3 bias_term: false }")
    subject = make_subject(input_layer(4, name="x") + embed)
    write_flax(subject, tmp_path / "net")
    batch = {"x": np.array([-1, 0, 2, -1.5], np.float32)}
    assert (np.asarray(subject.run(batch)["e"])[[0, 3]] == 0).all()
    assert_equal(subject, [batch], tmp_path / "net", flax_process)


def test_weights_can_be_an_orbax_checkpoint(tmp_path: Path, flax_process: ProcessPoolExecutor) -> None:
    subject = make_subject(make_residual_net(6))
    write_flax(subject, tmp_path / "net", weight_format="orbax")
    assert_equal(subject, draw_batches(subject, 2), tmp_path / "net", flax_process)


def test_sources_are_well_formed(source_folder: Path) -> None:
    sources = list(source_folder.glob("*/model.py"))
    assert len(sources) == len(CASES)
    for arguments in (
        ["format", "--check", "--line-length=120"],
        ["check", "--isolated", "--select=E,F,W,I,B,UP,N,SIM", "--line-length=120"],
    ):
        result = subprocess.run(
            [sys.executable, "-m", "ruff", *arguments, *sources], capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]


@pytest.mark.long
def test_sources_pass_the_type_checker(source_folder: Path, tmp_path: Path) -> None:
    names = ["deconv, groups", "lrn", "residual, in a list", "two bottoms", "shared", "interp", "prelu"]
    sources = [source_folder / f"case_{list(CASES).index(name)}" / "model.py" for name in names]
    for k, path in enumerate(sources):
        (tmp_path / f"net_{k}.py").write_text(path.read_text())
    flags = [
        "--strict",
        "--allow-untyped-calls",
        "--config-file=",
        f"--cache-dir={tmp_path}/cache",
        "--follow-imports=silent",
    ]
    result = subprocess.run(
        [sys.executable, "-m", "mypy", *flags, *sorted(tmp_path.glob("*.py"))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_code_of_the_readme_trains_the_net(tmp_path: Path, flax_process: ProcessPoolExecutor) -> None:
    net = make_residual_net(2).replace(layer("Dropout", "drop", "pool", "pool"), "")
    write_flax(make_subject(net), tmp_path / "net")
    shape, *losses = flax_process.submit(flax_worker.run_readme, str(tmp_path / "net")).result().splitlines()
    assert shape == "(2, 5)"
    assert len(losses) == 3
    assert float(losses[-1]) < float(losses[0])


@pytest.mark.parametrize(
    ("dropout", "fixed", "sentence"),
    [
        (
            True,
            False,
            "`train()` enables dropout and the batch statistics of batch norms, and `eval()` disables them.",
        ),
        (True, True, "`train()` enables dropout, and `eval()` disables it."),
        (False, True, "The net computes the same in both modes."),
    ],
)
def test_the_readme_describes_train_and_eval_mode(dropout: bool, fixed: bool, sentence: str, tmp_path: Path) -> None:
    text = make_residual_net(2)
    text = text if dropout else text.replace(layer("Dropout", "drop", "pool", "pool"), "")
    text = text.replace('type: "BatchNorm"', 'type: "BatchNorm" batch_norm_param { use_global_stats: true }', 9 * fixed)
    write_flax(make_subject(text), tmp_path / "net")
    page = (tmp_path / "net" / "README.md").read_text()
    assert f" {sentence}\n" in page
    assert "`--outputs=fc`" in page  # the scores, which can be trained where probabilities are 0


def test_dropout_and_batch_statistics_act_in_train_mode(tmp_path: Path, flax_process: ProcessPoolExecutor) -> None:
    text = make_residual_net(2)
    subject = make_subject(text)
    write_flax(subject, tmp_path / "net")
    (batch,) = draw_batches(subject, 4)
    actual = flax_process.submit(
        flax_worker.collect_results_by_mode, str(tmp_path / "net"), channels_last(batch["data"])
    ).result()
    assert not np.allclose(*actual["train"])  # other places are dropped each time
    assert not np.allclose(actual["eval"], actual["eval again"])  # by the statistics, which have moved:
    net = Net(text, "TRAIN")
    conv = np.asarray(net.apply(*draw_variables(net), batch, key=jax.random.key(0), blobs=["conv1"])[0]["conv1"])
    kernel = np.asarray(subject.arrays(subject.net.graph.layer("res0_a"))[0])
    convolved = jax.lax.conv(conv, kernel, (1, 1), "SAME")
    mean_before, mean_after = (
        next(v for n, v in actual[key].items() if n == "bn0_a.mean") for key in ("statistics", "train statistics")
    )
    batch_mean = np.asarray(convolved.mean((0, 2, 3)))
    np.testing.assert_allclose(mean_after, batch_mean + (mean_before - batch_mean) * 0.999**2, rtol=1e-4, atol=1e-5)
    names = {name.rpartition(".")[2] for name in actual["params"]}
    assert names == {"kernel", "bias", "scale"}


def test_gradients_of_unpooling_go_to_the_positions_of_maxima(
    tmp_path: Path, flax_process: ProcessPoolExecutor
) -> None:
    parts = [
        input_layer(2, 3, 7, 8),
        layer("Pooling", "p", "data", "p places", "pooling_param { kernel_size: 2 stride: 2 }"),
        layer("BN", "bn", "p", "bn", "bn_param { shift_filler { value: 0 } }"),
        layer("Upsample", "u", "bn places", "u", "upsample_param { upsample_h: 7 upsample_w: 8 }"),
    ]
    subject = make_subject("\n".join(parts))
    write_flax(subject, tmp_path / "net")
    batch, weights = (actual["data"] for actual in draw_batches(subject, 2, 2))
    expected = jax.grad(lambda x: (subject.run({"data": x})["u"] * weights).sum())(batch)
    inputs = map(channels_last, (batch, weights))
    actual = flax_process.submit(flax_worker.compute_gradient, str(tmp_path / "net"), *inputs).result()
    np.testing.assert_allclose(actual, channels_last(expected), rtol=1e-4, atol=1e-5 * np.abs(expected).max())


HOSTILE_NAMES = [
    "import os; os.remove('x')",
    'a"""\nraise SystemExit\n"""',
    "self",
    "class",
    "train",
    "x",
    "1",
    "",
    "\\",
    "ü\u2028{0}",
    "conv/1",
    "conv_1",
    "CONV-1",
    "{module}",
    "<7>",
]


def test_names_never_become_code(tmp_path: Path, flax_process: ProcessPoolExecutor) -> None:
    layers = [f"name: {_quote(HOSTILE_NAMES[1])}", input_layer(2, 3, 4, 4, name=_escape(HOSTILE_NAMES[0]))]
    bottom = HOSTILE_NAMES[0]
    for k, name in enumerate(HOSTILE_NAMES):
        top = f"{name}{k}"
        layers.append(
            f'layer {{ name: {_quote(name)} type: "Convolution" bottom: {_quote(bottom)} top: {_quote(top)}'
            f" convolution_param {{ num_output: {3 + k} kernel_size: 1 }} }}"
        )
        bottom = top if k % 3 else HOSTILE_NAMES[0]
    subject = make_subject("\n".join(layers))
    write_flax(subject, tmp_path / "net")
    tree = list(ast.walk(ast.parse((tmp_path / "net" / "model.py").read_text())))
    statements = {type(node) for node in tree if isinstance(node, ast.stmt)}
    assert statements <= {*ALLOWED_STATEMENTS, ast.Expr}
    assert all(isinstance(node.value, ast.Constant | ast.Call) for node in tree if isinstance(node, ast.Expr))
    called = {node.func.value.id for node in tree if isinstance(node, ast.Call) and _is_attribute_of_name(node.func)}
    assert called <= {"nnx", "self", "model", "weights", "Path", "variable"}
    assert_equal(subject, draw_batches(subject, 2), tmp_path / "net", flax_process)


def test_inputs_may_have_the_names_of_helpers_and_variables(tmp_path: Path, flax_process: ProcessPoolExecutor) -> None:
    images_of_block = make_residual_net(6).replace('"data"', '"block"')
    last_layers = layer("Scale", "again", "block", "again") + layer("ReLU", "last", "again", "last")  # after the loop
    lrn = input_layer(2, 3, 4, 5, name="local_response_norm") + layer("LRN", "lrn", "local_response_norm", "lrn")
    for k, text in enumerate((images_of_block + last_layers, lrn)):
        subject = make_subject(text)
        write_flax(subject, tmp_path / f"net_{k}")
        assert_equal(subject, draw_batches(subject, 2), tmp_path / f"net_{k}", flax_process)


ALLOWED_STATEMENTS = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef, ast.Assign, ast.Return)


def _is_attribute_of_name(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name)


def _escape(name: str) -> str:
    return "".join(c if c.isascii() and c.isalnum() else "".join(f"\\{b:03o}" for b in c.encode()) for c in name)


def _quote(name: str) -> str:
    return f'"{_escape(name)}"'


def test_an_error_names_all_unsupported_layers_and_nothing_is_written(tmp_path: Path) -> None:
    layers = [
        input_layer(2, 3, 4, 4),
        layer("Pooling", "pool", "data", "pool", "pooling_param { pool: STOCHASTIC kernel_size: 2 }"),
        layer("SPP", "spp", "pool", "spp", "spp_param { pyramid_height: 1 }"),
        layer("InnerProduct", "ip", "spp", "ip", "inner_product_param { num_output: 2 }"),
        layer("Power", "power", "ip", "out", "power_param { shift: inf }"),
    ]
    text = "\n".join(layers)
    with pytest.raises(CaffejaxError) as error:
        write_flax(make_subject(text), tmp_path / "net")
    lines = str(error.value).splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "layer 'pool' (Pooling)",
        "layer 'spp' (SPP)",
        "layer 'power' (Power)",
    ]
    assert "STOCHASTIC" in lines[0]
    assert list(tmp_path.iterdir()) == []


def test_an_error_names_outputs_that_can_be_written(tmp_path: Path) -> None:
    layers = [
        input_layer(2, 3, 4, 4),
        layer("Convolution", "conv", "data", "conv", "convolution_param { num_output: 4 kernel_size: 1 }"),
        layer("ReLU", "relu", "conv", "conv"),
        layer("Power", "left", "conv", "left", "power_param { scale: 2 }"),
        layer("Power", "right", "left", "right", "power_param { scale: 3 }"),
        layer("SPP", "spp", "left", "spp", "spp_param { pyramid_height: 1 }"),
        layer("InnerProduct", "ip", "right", "ip", "inner_product_param { num_output: 4 }"),
        layer("Flatten", "flat", "spp", "flat"),
        layer("Eltwise", "sum", "flat ip", "sum"),
    ]
    subject = make_subject("\n".join(layers))
    with pytest.raises(CaffejaxError, match=r"\(SPP\)(?s:.)*can be exported: --outputs=ip$"):
        write_flax(subject, tmp_path / "net")
    write_flax(make_inference_model(subject.net, subject.variables, ["ip"]), tmp_path / "net")


def test_repeated_blocks_become_a_class_and_a_list(source_folder: Path) -> None:
    source = (source_folder / f"case_{list(CASES).index('residual, in a list')}" / "model.py").read_text()
    classes = [node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    assert classes == ["ResBlock", "TinyResNet"]
    assert "self.res_blocks = nnx.List([ResBlock(rngs=rngs) for _ in range(6)])" in source
    assert "for block in self.res_blocks:" in source
    assert source.count("nnx.BatchNorm(") == 1


RECORDED_CASES = [case for case in ACCEPTED_CASES if case["type"] in FLAX.rules and "stochastic" not in case]


@pytest.mark.long
def test_recorded_layer_cases_are_equal(tmp_path: Path, flax_process: ProcessPoolExecutor) -> None:
    """Recorded layers of Caffe and its forks, except layers that are refused with a reason."""
    reasons, largest = {}, 0.0
    for k, case in enumerate(RECORDED_CASES):
        net = Net(case["path"].with_suffix(".prototxt"))
        subject = InferenceModel(net.for_inference(net.graph.layer("layer").tops), draw_variables(net))
        try:
            write_flax(subject, tmp_path / str(k))
        except CaffejaxError as error:
            reasons[format_case_id(case)] = str(error)
            continue
        batches = [{name: np.asarray(a) for name, a in _recorded_inputs(case, subject).items()}]
        largest = max(largest, assert_equal(subject, batches, tmp_path / str(k), flax_process))
    assert len(RECORDED_CASES) > 200
    assert len(reasons) < len(RECORDED_CASES) / 5, reasons
    assert all(": " in reason for reason in reasons.values())


def _recorded_inputs(case: dict[str, Any], subject: InferenceModel) -> dict[str, Any]:
    arrays = dict(np.load(case["path"].with_suffix(".npz")))
    return {name: arrays[f"bottom/{name}"] for name in subject.inputs}


def test_params_shared_with_another_kind_of_layer_are_refused(tmp_path: Path) -> None:
    settings = "inner_product_param { num_output: 4 bias_term: false }"
    layers = [
        input_layer(2, 3),
        layer("InnerProduct", "fa", "data", "fa", f"{SHARED} inner_product_param {{ num_output: 4 }}"),
        layer("InnerProduct", "fb", "data", "fb", f'param {{ name: "w" }} {settings}'),
    ]
    text = "\n".join(layers)
    with pytest.raises(CaffejaxError, match=r"layer 'fb' \(InnerProduct\): shares params with"):
        write_flax(make_subject(text), tmp_path / "net")


def test_a_fork_form_of_a_type_is_refused(tmp_path: Path) -> None:
    text = "\n".join([input_layer(2, 3), layer("InnerProduct", "f", "data", "f",
        "inner_product_param { num_output: 4 normalize: true }")])  # fmt: skip
    with pytest.raises(CaffejaxError, match=r"layer 'f' \(InnerProduct\): .*normalizes the rows"):
        write_flax(make_subject(text), tmp_path / "net")


@pytest.mark.parametrize("case", ["not empty", "a file", "no parent", "in a file"])
def test_unusable_folders_are_refused(case: str, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious").write_text("1")
    (tmp_path / "file").write_text("2")
    folders = {"not empty": "full", "a file": "file", "no parent": "no/net", "in a file": "file/net"}
    files_before = sorted(tmp_path.rglob("*"))
    with pytest.raises(CaffejaxError, match=str(tmp_path / folders[case])):
        write_flax(make_subject(NETS["shared"]), tmp_path / folders[case])
    assert sorted(tmp_path.rglob("*")) == files_before


def test_an_empty_folder_is_used(tmp_path: Path) -> None:
    write_flax(make_subject(NETS["shared"]), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"model.py", "model.safetensors", "README.md"}


def test_an_unknown_format_of_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaffejaxError, match="not 'pickle'"):
        write_flax(make_subject(NETS["shared"]), tmp_path / "net", weight_format="pickle")  # type: ignore[arg-type]
