"""The code of the documentation runs, and its statements hold."""

import ast
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import caffejax
import caffejax.core.solver.solver
from caffejax import Net, check_gradients
from caffejax.cli import main
from caffejax.core.layers import layer_types, registry, type_of
from caffejax.core.solver import lr_schedules, solver_param, update_rules
from compile_flags import make_cpu_devices_environment

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "name",
    [
        "make_layer_page.py",
        "make_export_pages.py",
        "make_command_page.py",
        "make_benchmark_page.py",
        "check_deploy_exports.py",
    ],
)
def test_pages_made_by_scripts_are_up_to_date(name: str) -> None:
    script = REPOSITORY / "scripts" / name
    result = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def read_python_blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs" / page).read_text(), re.DOTALL)


def test_the_guide_to_adding_a_layer_works(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    layer_types()  # all are imported: the guide's type is registered in a copy, which the next tests do not see
    monkeypatch.setattr(registry, "_types", layer_types())  # all, or one that a test imports first would be lost
    blocks = read_python_blocks("adding_a_layer.md")
    assert len(blocks[0].splitlines()) < 40
    namespace: dict[str, object] = {}
    for block in blocks:
        exec(block, namespace)
    assert "(4, 5)" in capsys.readouterr().out


def test_an_error_in_the_guide_to_adding_a_layer_is_found(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also where a param starts at zero, at which all gradients with respect to the bottom are zero."""
    layer_types()
    monkeypatch.setattr(registry, "_types", layer_types())
    code, _, net = read_python_blocks("adding_a_layer.md")
    wrong_code = code.replace(" - unit * along", "").replace(", value=[1.0] * x.shape[1]", "")
    assert "along)" not in wrong_code
    assert "value=" not in wrong_code
    exec(wrong_code, {})
    (text,) = re.findall(r'Net\("""(.*?)"""', net, re.DOTALL)
    (tmp_path / "net.prototxt").write_text(text)
    assert main(["gradcheck", str(tmp_path / "net.prototxt"), "--json"]) == 1
    assert '"verdict": "rule is wrong: autodiff and finite differences agree"' in capsys.readouterr().out
    net_with_wrong_rule = Net(text, "TRAIN")
    assert not check_gradients(net_with_wrong_rule).ok
    assert not check_gradients("UnitRows", bottoms=[(4, 5)]).ok
    zeros = jax.tree.map(jnp.zeros_like, net_with_wrong_rule.init(jax.random.key(0)))
    (bottom, blob) = check_gradients(net_with_wrong_rule, weights=zeros).rows
    assert bottom.verdict.startswith("not checked: all gradients are zero; give other weights")
    assert blob.ok
    assert not bottom.ok


def test_the_guide_to_python_layers_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module, *blocks = read_python_blocks("python_layers.md")
    (tmp_path / "my_layers.py").write_text(module)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    namespace: dict[str, object] = {}
    for block in blocks:
        exec(block, namespace)
    out = capsys.readouterr().out
    first_loss, last_loss = (float(n) for n in re.findall(r"loss ([\d.]+), after 30 steps ([\d.]+)", out)[0])
    assert last_loss < first_loss / 2
    assert re.search(r"loss +Python +bottom 0 \(score\) .* ok", out)


def test_the_page_on_python_works(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (REPOSITORY / "docs" / "python.md").read_text()
    assert len(page.splitlines()) < 150
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block, namespace)
    assert capsys.readouterr().out.splitlines() == ["[1. 1.]", "(2, 4) (4, 3)", "(5, 4)", "True", "51"]


def test_the_readme_works(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With random weights where its first command would have written trained ones."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").symlink_to(REPOSITORY / "configs")
    (tmp_path / "snapshots").mkdir()
    net = caffejax.Net("configs/lenet/train_val.prototxt", "TEST")
    net.save(*net.init(jax.random.key(0)), "snapshots/lenet_iter_1000.caffemodel")
    page = (REPOSITORY / "README.md").read_text()
    assert len(page.splitlines()) <= 155
    namespace: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block, namespace)
    assert re.match(r"\(5, 10\)\n.*iteration 20 of 20", capsys.readouterr().out, re.DOTALL)
    (count,) = re.findall(r"More than (\d+) layer types", page)
    assert len(layer_types()) > int(count)


def test_the_page_on_solvers_works(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for block in read_python_blocks("solvers.md"):
        exec(block, {})
    assert capsys.readouterr().out == "11 0.05\n"


def test_the_page_on_weights_works(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").symlink_to(REPOSITORY / "configs")
    namespace: dict[str, Any] = {}
    for block in read_python_blocks("weights.md"):
        exec(block, namespace)
    (expected_output,) = re.findall(r"```text\n(.*?)```", (REPOSITORY / "docs" / "weights.md").read_text(), re.DOTALL)
    assert capsys.readouterr().out == expected_output
    solver, variables = namespace["solver"], namespace["variables"]
    np.testing.assert_array_equal(solver.variables.params["conv1"]["weight"], variables.params["conv1"]["weight"])


def test_the_page_on_solvers_lists_all_rules_policies_and_settings_of_forks() -> None:
    page = (REPOSITORY / "docs" / "solvers.md").read_text()
    for names, heading in (
        (update_rules.RULES, "## Update rules"),
        (lr_schedules.POLICIES, "## Learning-rate policies"),
        ([*solver_param._ALLOWED_VALUES, *solver_param._SUPPORTED_SETTINGS], ""),
    ):
        section = page.partition(heading)[2].partition("\n## ")[0] if heading else page
        assert [name for name in names if not re.search(rf"`{name}\b", section)] == []


@pytest.mark.long
def test_the_page_on_own_data_works(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").symlink_to(REPOSITORY / "configs")
    namespace: dict[str, Any] = {}
    for block in read_python_blocks("own_data.md"):
        exec(block, namespace)
    assert capsys.readouterr().out.splitlines() == ["True", "True"]


def test_the_page_on_inference_works(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    monkeypatch.setattr(caffejax, "tune_process", lambda: None)
    namespace: dict[str, Any] = {}
    for block in read_python_blocks("inference.md"):
        exec(block, namespace)
    output = capsys.readouterr().out.splitlines()
    assert output[0] == "(1, 10)"
    assert "(1, 1, 28, 28) ()" in output
    assert output[1] == "Frozen net 'LeNet': data -> prob"


def test_the_page_for_jax_users_works(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").symlink_to(REPOSITORY / "configs")
    namespace: dict[str, Any] = {}
    for block in read_python_blocks("jax.md"):
        exec(block, namespace)
    assert capsys.readouterr().out == "True\n"
    expected = namespace["jax"].grad(namespace["loss"])(*(namespace[n] for n in ("params", "images", "labels")))
    for name, gradients in {n: namespace[n] for n in ("whole", "gradients")}.items():
        for a, b in zip(*map(namespace["jax"].tree.leaves, (gradients, expected)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5, err_msg=name)


TWO_DEVICES_SCRIPT = """
import jax, numpy as np
assert len(jax.devices()) == 2
expected = jax.grad(loss)(jax.device_get(params), images, labels)
for gradient in whole, gradients:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), gradient, expected)
"""


def test_the_page_for_jax_users_works_on_two_devices(tmp_path: Path) -> None:
    (tmp_path / "configs").symlink_to(REPOSITORY / "configs")
    (tmp_path / "page.py").write_text("\n".join([*read_python_blocks("jax.md"), TWO_DEVICES_SCRIPT]))
    environment = {**os.environ, **make_cpu_devices_environment(2)}
    command = [sys.executable, "page.py"]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "True\n"), run.stderr


def test_the_page_on_profiling_works(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Layers' names are in the program and in the trace, and XLA counts what the page says."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").symlink_to(REPOSITORY / "configs")
    namespace: dict[str, Any] = {}
    for block in read_python_blocks("profiling.md"):
        exec(block, namespace)
    has_names, counts = capsys.readouterr().out.splitlines()
    fast, reference = map(float, counts.split())
    assert has_names == "True"
    assert fast < 1
    assert 840 < reference < 880  # 3 times 147 million multiply-adds, but for the gradient of the images
    (trace,) = tmp_path.glob("profile/**/*.xplane.pb")
    assert b"jvp(conv1)" in trace.read_bytes()


def test_the_reference_groups_every_public_name_once() -> None:
    page = (REPOSITORY / "docs" / "reference.md").read_text()
    hooks = runpy.run_path(str(REPOSITORY / "scripts" / "mkdocs_hooks.py"))
    names = hooks["list_reference_names"](page)
    assert len(names) == len(set(names))
    assert set(names) <= set(hooks["list_public_names"]())
    written = hooks["write_reference"](page)
    assert re.findall(r"^::: caffejax\.(\S+)$", written, re.MULTILINE)[:2] == ["Net", "Variables"]
    assert set(re.findall(r"^::: caffejax\.(\S+)$", written, re.MULTILINE)) == set(hooks["list_public_names"]())


@pytest.mark.skipif(not (REPOSITORY / ".git").exists(), reason="needs a clone")
def test_the_readme_and_the_page_for_jax_users_leave_git_status_clean() -> None:
    text = "".join((REPOSITORY / name).read_text() for name in ("README.md", "docs/jax.md", "docs/profiling.md"))
    files = re.findall(r"--(?:out|to)[= ](\S+\.\w+)", text)
    files += re.findall(r'(?:net\.save\([^"]*|Path\(|trace\()"([^"]+)"', text)
    assert {"lenet.onnx", "lenet.caffemodel", "own_checkpoint", "googlenet.html", "profile"} <= set(files)
    for file in files:
        command = ["git", "-C", REPOSITORY, "check-ignore", file, f"{file}/x"]
        is_ignored = subprocess.run(command, capture_output=True, check=False)
        assert is_ignored.returncode == 0, file


def test_commands_of_the_readme_run_in_a_clone_or_have_placeholders_in_capitals() -> None:
    """Each file that a command reads is in the clone, or is written by the first command, or is a word in capitals."""
    page = (REPOSITORY / "README.md").read_text()
    commands = re.findall(r"^    (caffejax (?:.*\\\n)*.*)$", page, re.MULTILINE)
    assert len(commands) >= 6
    for command in commands:
        words = shlex.split(re.sub(r"--(to|out)[= ]\S+", "", command), comments=True)[2:]
        for word in (word.split("=")[-1] for word in words):
            is_file = "." in word or "/" in word
            assert not is_file or (REPOSITORY / word).exists() or word == "snapshots/lenet_iter_1000.caffemodel", (
                command
            )


RULES = {
    "SGD": "base_lr: 0.01 momentum: 0.9",
    "Nesterov": "base_lr: 0.01 momentum: 0.9",
    "AdaGrad": "base_lr: 0.01 delta: 1e-7",
    "RMSProp": "base_lr: 0.0005 rms_decay: 0.98 delta: 1e-4",
    "AdaDelta": "base_lr: 1 momentum: 0.95 delta: 1e-6",
    "Adam": "base_lr: 0.001 momentum: 0.9 momentum2: 0.999",
}
STEPS_AND_TOLERANCES = ((10, 1e-5), (50, 1e-3))


@pytest.mark.parametrize("rule", RULES)
def test_the_loop_of_the_page_for_jax_users_has_the_losses_of_solver(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For Caffe's six rules."""
    monkeypatch.chdir(REPOSITORY)
    first, loop = (
        next(block for block in read_python_blocks("jax.md") if words in block)
        for words in ("net = caffejax.Net(", "caffejax.optimizer(")
    )
    settings = f'type: "{rule}" {RULES[rule]} weight_decay: 0.0005 lr_policy: "inv" gamma: 0.0001 power: 0.75'
    loop, num_settings = re.subn(r'settings = """.*?"""', f"settings = {settings!r}", loop, flags=re.DOTALL)
    loop, num_steps = re.subn(r"^n = 10$", "n = 50", loop, flags=re.MULTILINE)
    assert num_settings == num_steps == 1
    namespace: dict[str, Any] = {"optax": optax}
    exec(first, namespace)
    exec(loop, namespace)
    data = {name: np.asarray(blob).reshape(-1, *blob.shape[2:]) for name, blob in namespace["batches"].items()}
    solver = caffejax.Solver(
        f'net: "configs/lenet/train_val.prototxt" max_iter: 50 random_seed: 1 {settings}', data=data
    )
    solver.train_state = solver.train_state.replace(params=jax.tree.map(jnp.copy, namespace["params"]))
    losses: list[float] = []
    solver.callbacks.append(lambda s: losses.append(s.smoothed_loss))
    solver.step(50)
    solver.close()
    for steps, tolerance in STEPS_AND_TOLERANCES:
        np.testing.assert_allclose(namespace["losses"][:steps], losses[:steps], rtol=tolerance)


def test_the_page_on_comparing_works(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    page = (REPOSITORY / "docs" / "comparing.md").read_text()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").symlink_to(REPOSITORY / "configs")
    commands = "".join(re.findall(r"```bash\n(.*?)```", page, re.DOTALL)).splitlines()
    assert [main(line.split()[1:]) for line in commands] == [0] * len(commands)
    output = capsys.readouterr().out
    assert "All 36 arrays in both dumps are equal (rtol 0.001, atol 1e-07)." in output
    for line in page.splitlines():  # the lines that it shows, numbers apart, which machines round differently
        if re.match(r"    (layer|conv1) ", line):
            assert line.split("  ")[2].strip() in output
    assert (tmp_path / "error.png").stat().st_size > 10_000
    (block,) = read_python_blocks("comparing.md")
    exec(block, {})
    assert capsys.readouterr().out.splitlines() == ["True None 36", "(64, 10) (20, 1, 5, 5)"]
    members = set(re.findall(r"^\| `([\w]+)", page, re.MULTILINE))
    with np.load("a.npz") as file:
        assert {name.partition("/")[0] for name in file.files} == members


def test_the_page_on_flax_source_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (REPOSITORY / "docs" / "exporting_flax.md").read_text()
    (expected_source,) = re.findall(r"```python source\n(.*?)```", page, re.DOTALL)
    (tmp_path / "configs").symlink_to(REPOSITORY / "configs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "model", raising=False)
    namespace: dict[str, Any] = {}
    for block in read_python_blocks("exporting_flax.md"):
        exec(block, namespace)
    assert (tmp_path / "lenet" / "model.py").read_text() == expected_source
    assert capsys.readouterr().out == "(7, 10)\n"


def test_the_page_on_callbacks_lists_all_events() -> None:
    page = (REPOSITORY / "docs" / "callbacks.md").read_text()
    assert re.findall(r"^\| `(on_\w+)\(", page, re.MULTILINE) == [n for n in vars(caffejax.Callback) if n[:3] == "on_"]


def test_the_page_on_models_lists_all_configs() -> None:
    page = (REPOSITORY / "docs" / "models.md").read_text()
    rows = [line.split("|")[1:-1] for line in page.splitlines() if line.startswith("|")]
    assert {len(row) for row in rows} == {8}
    net_names = [name for row in rows for name in re.findall(r"`(\w+)`", row[2])]
    assert sorted([*net_names, "lstm"]) == sorted(
        path.name for path in (REPOSITORY / "configs").iterdir() if path.is_dir()
    )


def test_pages_quote_the_means_of_the_table_of_comparisons() -> None:
    """The mean of training steps is computed again, from the table of nets; the others are compared with the table."""
    page = (REPOSITORY / "docs" / "benchmarks.md").read_text()
    means = dict(re.findall(r'^\| <a id="([\w-]+)"></a>[^|]+\|[^|]+\| \*\*([\d.]+)\*\* \|', page, re.MULTILINE))
    assert len(means) == page.count("<a id=") > 20
    steps = re.findall(r"^\| [\w.\- ]+ \| 1: .*? \| .*? \| \d+: [\d.]+ \(([\d.]+)\) \|", page, re.MULTILINE)
    assert len(steps) == 7
    assert np.exp(np.mean(np.log([float(ratio) for ratio in steps]))) == pytest.approx(
        float(means["torch-step"]), abs=0.01
    )
    headings = {title.lower().replace(" ", "-") for title in re.findall(r"^## (.+)$", page, re.MULTILINE)}
    quotes = {}
    for path in (REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md")):
        text = path.read_text()
        quotes[path.name] = re.findall(r"\[([\d.]+)\]\(\S*benchmarks\.md#([\w-]+)\)", text)
        assert set(re.findall(r"benchmarks\.md#([\w-]+)", text)) <= means.keys() | headings, path
        assert [(number, name) for number, name in quotes[path.name] if means[name] != number] == [], path
        if path.parent.name != "development" and path.name != "benchmarks.md":  # a number without a link to its row
            assert re.findall(r".*\d times as (?:fast|many).*", text) == [], path
    assert {"torch-step", "engines-1", "engines-batch", "gpu-torch"} <= {name for _, name in quotes["README.md"]}


def test_a_quoted_mean_that_differs_from_the_table_is_found() -> None:
    script = runpy.run_path(str(REPOSITORY / "scripts" / "benchmark_means.py"))
    row = script["Comparison"]("torch-step", "training step", "PyTorch", "2026-11-27", "a CPU", ratios=[1.0, 4.0])
    text = "It is [{}](docs/benchmarks.md#torch-step) times as fast, see [step 3](docs/benchmarks.md#torch-step)."
    assert script["quote_means"](text.format("9.99"), [row]) == text.format("2.00")
    with pytest.raises(ValueError, match=r"\[1.5\]\(benchmarks.md#none\): the rows are torch-step"):
        script["quote_means"]("[1.5](benchmarks.md#none)", [row])


def test_links_between_pages_exist() -> None:
    pages = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")]
    links = [(page, link) for page in pages for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text())]
    assert len(links) > 20
    assert [f"{page}: {link}" for page, link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", ["layers_caffe.md", pytest.param("layers_forks.md", marks=pytest.mark.long)])
def test_the_calls_on_the_pages_of_layers_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With arrays of the shapes above them, and the params and state of `init`; tops have the page's shapes.

    They are traced, as `jax.jit` would, and not compiled, but those of host layers, whose shapes depend on numbers.
    """
    monkeypatch.chdir(tmp_path)
    shutil.copy(REPOSITORY / "tests" / "forks" / "rcnn" / "frcnn_config.json", "voc_config.json")
    text = (REPOSITORY / "docs" / page).read_text()
    examples = re.findall(r"^```\n# (.*)\n[^`]*```\n\n```python\n([^`]*)```$", text, re.MULTILINE)
    assert len(examples) == text.count("caffejax.layer(") > 60
    random, key = np.random.default_rng(0), jax.random.key(0)
    for description, code in examples:
        inputs, _, tops = description.partition("; params ")[0].rpartition(" gives ")
        shapes = {name: _parse_shape(shape) for name, shape in re.findall(r"(\w+) ([\dx]+|\(\))", inputs)}
        arrays = {
            name: np.zeros(shape, int) if name.startswith("label") else random.uniform(1, 2, shape).astype(np.float32)
            for name, shape in shapes.items()
        }
        if "rois" in arrays:
            arrays["rois"][:, 0] = 0  # the image
        (statement,) = ast.parse(code).body
        call = statement.value  # type: ignore[attr-defined]
        function = eval(ast.unparse(call.func), {"caffejax": caffejax})
        params, state = function.init(key, *(shapes[a.id] for a in call.args if a.id != "params"))
        shapes_of_tops = re.findall(r"(\w+) ([\dx]+|\(\))", tops)

        def call(names: dict[str, Any], code: str = code, tops: Any = shapes_of_tops) -> list[Any]:
            names = {"caffejax": caffejax, **names}
            exec(code, names)
            return [names[name] for name, _ in tops]

        names = {"params": params, "state": state, "key": key, **arrays}
        results = call(names) if type_of(function.definition).on_host else jax.eval_shape(call, names)
        for result, (_, shape) in zip(results, shapes_of_tops, strict=True):
            assert result.shape[1:] == _parse_shape(shape)[1:], code  # as many rows at most


def _parse_shape(text: str) -> tuple[int, ...]:
    return () if text == "()" else tuple(map(int, text.split("x")))
