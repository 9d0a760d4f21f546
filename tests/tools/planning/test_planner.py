"""Plans: their arithmetic, the search for the largest batch, and errors."""

import importlib.util
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from planned_nets import LENET, make_resnet

from caffejax import CaffejaxError, GraphError, Net, Parallel
from caffejax.cli import main
from caffejax.core.ops.compilation import compiler_options
from caffejax.core.schema.caffe_pb2 import SolverParameter
from caffejax.tools.planning import Plan, parse_target, plan, planner
from caffejax.tools.planning.hlo import Collective, ProgramStats
from doubling_layer import Double

ONE_DEVICE = parse_target("tpu:v5e:1")


@pytest.fixture
def use_cpu_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile for this machine instead of the target."""
    monkeypatch.setattr(planner, "get_devices", lambda target: jax.devices()[:1])


def make_plan(needed_bytes: int = 2**30, **program: Any) -> Plan:
    empty_program = ProgramStats(0, None, 0, 0, 0, (), 0, 0, 0, 0)
    target = parse_target("tpu:v5e:2x2")
    return Plan(target, "bfloat16", "TRAIN", 32, replace(empty_program, **program), needed_bytes, 197 * 10**9, 1.0)


def test_seconds_follow_the_roofline() -> None:
    result = make_plan(traffic=819 * 10**7, collectives=(Collective("all-reduce", 10**8, 2, group_size=4),))
    assert result.seconds == pytest.approx({"arithmetic": 1e-3, "memory": 1e-2, "links": 2 * 2e8 * 0.75 / 100e9})
    assert (result.best_seconds, result.bottleneck) == (pytest.approx(1e-2), "memory")
    assert result.examples_per_second == pytest.approx(4 * 32 / 1e-2)
    assert result.fits
    assert not make_plan(needed_bytes=16 * 2**30).fits


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_operations_and_memory_of_a_step_and_a_pass(use_cpu_compiler: None, precision: Any) -> None:
    train_plan = plan(Net(LENET, "TRAIN", precision=precision), ONE_DEVICE, batch=16)
    test_plan = plan(Net(LENET, "TEST", precision=precision), ONE_DEVICE, batch=16)
    operations_per_image = 2 * (20 * 24 * 24 * 25 + 50 * 8 * 8 * 500 + 800 * 500 + 500 * 10)
    assert test_plan.operations == 16 * operations_per_image
    assert train_plan.operations == 16 * (3 * operations_per_image - 2 * 20 * 24 * 24 * 25)  # no gradient of the images
    for result in (train_plan, test_plan):
        assert result.program is not None
        # a CPU's own kernels compute in float32, in which parameters are kept and updated
        assert result.program.num_host_calls == 0 or precision == "float32" or result is train_plan
        assert result.needed_bytes == result.program.memory > 16 * 28 * 28 * 4
        assert result.largest_batch is None


def test_a_step_of_several_passes_counts_the_examples_of_all_passes(use_cpu_compiler: None) -> None:
    solver = SolverParameter(type="SGD", base_lr=0.01, lr_policy="fixed", iter_size=4)
    single, several = (plan(Net(LENET, "TRAIN"), ONE_DEVICE, batch=16, solver=s) for s in (planner.SGD, solver))
    assert several.operations == 4 * single.operations
    for result, examples in ((single, 16), (several, 4 * 16)):
        assert result.examples_per_second == pytest.approx(examples / result.best_seconds)


@pytest.mark.parametrize(
    ("target", "kernels", "flags", "options"),
    [
        ("cuda:h100:1", "fast", "", {"xla_gpu_enable_triton_gemm": False}),
        ("cuda:h100:1", "fast", "--xla_gpu_enable_triton_gemm=true", {}),
        ("cuda:h100:1", "reference", "", {}),
        ("tpu:v5e:1", "fast", "", {}),
    ],
)
def test_a_plan_compiles_with_the_options_of_training(
    use_cpu_compiler: None,
    monkeypatch: pytest.MonkeyPatch,
    target: str,
    kernels: Any,
    flags: str,
    options: dict[str, Any],
) -> None:
    """Otherwise the program is another one, and PSPNet-50's has a product that XLA cannot compile without a GPU."""
    used_options = []
    compile_lowered = jax.stages.Lowered.compile

    def record_options(self: jax.stages.Lowered, compiler_options: Any = None, **rest: Any) -> jax.stages.Compiled:
        used_options.append(compiler_options)
        return compile_lowered(self, **rest)

    monkeypatch.setenv("XLA_FLAGS", flags)
    monkeypatch.setattr(jax.stages.Lowered, "compile", record_options)
    monkeypatch.setattr(planner, "compiler_options", compiler_options.__wrapped__)  # which caches what XLA_FLAGS says
    plan(Net(LENET, "TRAIN", kernels=kernels), parse_target(target), batch=4)
    assert used_options == [options]


@pytest.mark.parametrize("fixed", [0, 10**9])
@pytest.mark.parametrize("per_example", [1, 32, 5000])
@pytest.mark.parametrize(("search", "tries", "within"), [("check", 8, 0.07), ("estimate", 2, 0.25)])
def test_the_largest_batch_is_found(
    use_cpu_compiler: None,
    monkeypatch: pytest.MonkeyPatch,
    search: Any,
    tries: int,
    within: float,
    fixed: int,
    per_example: int,
) -> None:
    """The batch is found to within 5 % from any start in few tries, although memory grows faster than linearly."""
    tried_batches = []

    def make_tried_plan(self: Any, batch: int) -> Plan:
        tried_batches.append(batch)
        return replace(make_plan(needed_bytes=fixed + int(5e6 * batch**1.01)), batch=batch)

    monkeypatch.setattr(planner.CompileJob, "plan", make_tried_plan)
    result = plan(Net(LENET, "TRAIN"), ONE_DEVICE, batch=per_example, largest=search).largest_batch
    assert result is not None
    usable = make_plan().usable_bytes
    expected_batch = int(((usable - fixed) / 5e6) ** (1 / 1.01))
    assert (
        (1 - within) * expected_batch
        <= result
        <= (expected_batch if search == "check" else (1 + within) * expected_batch)
    )
    assert len(tried_batches) <= tries


def test_the_largest_batch_is_0_if_nothing_fits(use_cpu_compiler: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner.CompileJob, "plan", lambda self, batch: replace(make_plan(2**50), batch=batch))
    assert plan(Net(LENET, "TRAIN"), ONE_DEVICE, batch=1, largest="check").largest_batch == 0


@pytest.mark.parametrize(
    ("message", "needed_bytes"),
    [
        ("RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 20.50G of 15.75G hbm.", int(20.5 * 2**30)),
        (
            "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory required for HLO "
            "temporaries (41.66G) exceeds available HBM (15.75G). HLO module: jit_step.",
            int(41.66 * 2**30),
        ),
        ("INTERNAL: something else", None),
        ("RESOURCE_EXHAUSTED: without a number", None),
    ],
)
def test_out_of_memory_messages_are_parsed(message: str, needed_bytes: int | None) -> None:
    assert planner.parse_needed_bytes(message) == needed_bytes


def test_images_have_the_dtype_of_their_source(use_cpu_compiler: None) -> None:
    net = Net(LENET.parents[1] / "digits" / "lenet_train_test.prototxt", "TRAIN")
    (_, (_, inputs, _), _) = planner.CompileJob(net, ONE_DEVICE, planner.SGD, Parallel(), 0, print).make_function(64)
    assert {name: x.dtype for name, x in inputs.items()} == {"data": np.uint8, "label": np.float32}


def test_nets_that_cannot_be_planned_are_refused(use_cpu_compiler: None, tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=r"has inputs without the batch axis 1: label"):
        plan(Net(LENET, "TRAIN"), ONE_DEVICE, batch_axis=1)
    recurrent_net = Path(__file__).parents[3] / "configs" / "lstm" / "train_val.prototxt"
    assert plan(Net(recurrent_net, "TRAIN"), ONE_DEVICE, batch=4, batch_axis=1).batch == 4
    net_with_boxes = (
        'layer { name: "x" type: "Input" top: "x" top: "boxes" input_param { shape { dim: 4 dim: 3 } '
        'shape { dim: 1 dim: 5 } } } layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" '
        'inner_product_param { num_output: 5 } } layer { name: "size" type: "Reduction" bottom: "ip" top: "size" '
        "loss_weight: 1 }"
    )
    assert (
        plan(Net(net_with_boxes, "TRAIN"), ONE_DEVICE).batch == 4
    )  # pictures and all their boxes: as many as the net has
    for options in ({"batch": 4}, {"largest": "estimate"}, {"parallel": Parallel(batch="global")}):
        with pytest.raises(GraphError, match=r"different sizes, \[1, 4\], along axis 0"):
            plan(Net(net_with_boxes, "TRAIN"), ONE_DEVICE, **options)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="different sizes"):
        plan(Net(net_with_boxes, "TEST"), ONE_DEVICE)


class Cut(Double):
    """A Python layer whose tops may have other shapes in each pass."""

    def reshape(self, bottom: Any, top: Any) -> None:
        top[0].reshape(1)

    def forward(self, bottom: Any, top: Any) -> None:
        top[0].reshape(int(bottom[0].data.sum()) + 1)


def test_calls_to_the_host_are_part_of_the_program(use_cpu_compiler: None, tmp_path: Path, capsys: Any) -> None:
    layer = 'layer { name: "f" type: "Python" bottom: "label" top: "f" python_param { module: "%s" layer: "%s" } }'
    with pytest.raises(GraphError, match="the shapes that these layers give their tops may change: f"):
        plan(Net(make_resnet() + layer % (__name__, "Cut"), "TRAIN"), ONE_DEVICE)
    fields = f'bottom: "ip" bottom: "label" hdf5_output_param {{ file_name: "{tmp_path}/f.h5" }}'
    writer = f'layer {{ name: "h" type: "HDF5Output" {fields} }}'
    file = tmp_path / "net.prototxt"
    file.write_text(make_resnet() + layer % (Double.__module__, "Double") + writer)
    assert main(["plan", str(file), "--target", "tpu:v5e:1", "--largest", "none", "--kernels", "reference"]) == 0
    assert "calls to the host  2, whose time is not known" in capsys.readouterr().out
    assert not (tmp_path / "f.h5").exists()


@pytest.mark.parametrize("phase", ["TRAIN", "TEST"])
def test_layers_on_the_host_with_a_traced_form_are_part_of_the_program(use_cpu_compiler: None, phase: Any) -> None:
    text = make_resnet() + 'layer { name: "f" type: "Filter" bottom: "ip" bottom: "label" top: "f" }'
    net = Net(text, phase, kernels="reference")
    assert net.graph.has_host_layers
    program = plan(net, ONE_DEVICE).program
    assert program is not None
    assert program.num_host_calls == 0


@pytest.mark.parametrize(("target", "package"), [("tpu:v5e:2x2", "libtpu"), ("cuda:h100:4", "jax-cuda12-plugin")])
def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch, target: str, package: str) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CaffejaxError, match=rf"pip install .*{package}"):
        plan(Net(LENET, "TRAIN"), parse_target(target))


def test_the_command_reports_what_cannot_be_planned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("caffejax.cli.compile_for_absent_devices", lambda: None)
    invalid_net = tmp_path / "bad.prototxt"
    invalid_net.write_text('layer { name: "a" typo: 1 }')
    for arguments, message in (
        ([str(invalid_net), "--target", "tpu:v5e:2x2"], "typo"),
        ([str(tmp_path / "none.prototxt"), "--target", "tpu:v5e:2x2"], "none.prototxt"),
        ([str(LENET), "--target", "tpu:v7:2x2"], "no chip is called 'tpu:v7'"),
        ([str(LENET), "--target", "tpu:v5e:2x2", "--phase", "TEST", "--shard=params"], "can be set only for training"),
    ):
        assert main(["plan", *arguments]) == 1
        output = capsys.readouterr()
        assert message in output.err
        assert "Traceback" not in output.err
        assert not output.out


def test_the_command_refuses_a_mesh_of_the_wrong_size() -> None:
    """The command runs in its own process, because its settings must take effect before JAX is used."""
    command = [sys.executable, "-m", "caffejax", "plan", str(LENET), "--target", "tpu:v5e:2x2"]
    result = subprocess.run([*command, "--mesh", "data=4,model=2"], capture_output=True, text=True)
    assert result.returncode == 1
    assert "8 devices, but there are 4 in tpu" in result.stderr
    assert "Traceback" not in result.stderr
    assert not result.stdout


def test_a_solver_is_distinguished_from_a_net(
    use_cpu_compiler: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("caffejax.cli.compile_for_absent_devices", lambda: None)
    solver = LENET.parents[1] / "digits" / "lenet_solver.prototxt"
    for phase, description in (("TRAIN", "training step"), ("TEST", "forward pass")):
        assert main(["plan", str(solver), "--target", "tpu:v5e:1", "--batch", "2", "--phase", phase]) == 0
        assert capsys.readouterr().out.startswith(f"{description} in float32 on 1 x tpu v5e, 2 examples each")
