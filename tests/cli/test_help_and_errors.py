"""The command line: its help, its errors, its imports."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import lmdb
import pytest

from caffejax.base.databases import Lmdb, write_lmdb
from caffejax.cli import main
from caffejax.core.schema import caffe_pb2

CONFIGS = Path(__file__).parents[2] / "configs" / "digits"
NET = (CONFIGS / "lenet_train_test.prototxt").read_text()
SOLVER = (CONFIGS / "lenet_solver.prototxt").read_text()


@pytest.fixture
def job_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the digits job, to spoil; also the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lenet_train_test.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    for name in ("digits_train_lmdb", "digits_test_lmdb"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "data.mdb").write_bytes((CONFIGS / name / "data.mdb").read_bytes())
    return tmp_path


def run_with_error(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 1) -> str:
    """Runs a command that must fail: no traceback, nothing on stdout; its messages."""
    assert main(arguments) == code
    out, err = capsys.readouterr()
    assert not out
    assert "Traceback" not in err
    return "\n".join(line for line in err.splitlines() if line.startswith("caffejax:"))


def test_commands_have_help_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    out = capsys.readouterr().out
    task_text, tools_text = out.split("Caffe's other tools:")
    commands = re.findall(r"^  ([a-z]+) +\w", task_text, re.MULTILINE)
    assert commands[:2] == ["train", "test"]
    commands += tools_text.split("\n\n")[0].split()
    assert len(commands) == len(set(commands)) > 35
    for command in commands:
        with pytest.raises(SystemExit) as exc_info:
            main([command, "--help"])
        assert exc_info.value.code == 0
        assert f"example: caffejax {command}" in capsys.readouterr().out


def test_an_unknown_layer_type_is_answered_with_the_page_on_adding_one(
    job_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (job_folder / "lenet_train_test.prototxt").write_text(
        NET.replace('"ReLU"', '"Unheard"').replace('"Pooling"', '"Unseen"')
    )
    output = run_with_error(capsys, "summary", "lenet_train_test.prototxt").splitlines()
    page = re.search(r"the documentation's page '(.+)'", output[-1])
    assert page is not None
    assert (Path(__file__).parents[2] / "docs" / "adding_a_layer.md").read_text().startswith(f"# {page[1]}\n")
    assert sum("--import" in line for line in output) == 1


def test_train_help_lists_each_flag_once_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    text = capsys.readouterr().out
    flags = re.findall(r"^  (--?\w\S*)", text, re.MULTILINE)
    assert len(flags) == len(set(flags)) > 25
    assert all(flag.startswith("--") and "-" not in flag[2:] for flag in flags)
    assert len(re.findall(r"^[\w' ]+:$", text, re.MULTILINE)) >= 6
    assert re.search(r"--precision .*default:\s+float32", text, re.DOTALL)
    assert text.startswith("usage: caffejax train SOLVER [flags]\n")


def test_the_command_line_starts_without_jax() -> None:
    code = "import sys, caffejax.cli; sys.exit('jax' in sys.modules or 'google.protobuf' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("damage_job", "message"),
    [
        (lambda job_folder: (job_folder / "solver.prototxt").unlink(), r"solver\.prototxt: no such file"),
        (
            lambda job_folder: (job_folder / "lenet_train_test.prototxt").unlink(),
            r"its net is 'lenet_train_test\.prototxt', but there is no such file",
        ),
        (
            lambda job_folder: (job_folder / "solver.prototxt").write_text(SOLVER + "\nmomentun: 0.9 delta: high\n"),
            r"solver\.prototxt:20:1: .*momentun.*did you mean 'momentum'.*\n.*solver\.prototxt:20:22: .*high",
        ),
        (
            lambda job_folder: (job_folder / "lenet_train_test.prototxt").write_text(NET[:-2]),
            r"lenet_train_test\.prototxt:\d+:\d+: .*ends inside LayerParameter",
        ),
        (
            lambda job_folder: (job_folder / "lenet_train_test.prototxt").write_text(
                NET.replace('"Pooling"', '"Poling"').replace('"InnerProduct"', '"InerProduct"')
            ),
            r"(?s)layer 'pool1': unknown layer type 'Poling'; did you mean 'Pooling'.*'pool2'.*'ip1'.*'ip2'",
        ),
        (
            lambda job_folder: (job_folder / "lenet_train_test.prototxt").write_text(
                NET.replace('bottom: "ip2"\n  bottom: "label"\n  top: "loss"', 'bottom: "ip2"\n  top: "loss"')
            ),
            r"layer 'loss' \(SoftmaxWithLoss\): takes exactly 2 bottoms, but has 1",
        ),
        (
            lambda job_folder: (job_folder / "lenet_train_test.prototxt").write_text(
                NET.replace("size: 5", "size: 50")
            ),
            r"layer 'conv1' \(Convolution\): the kernel does not fit: the input has size \(28, 28\)",
        ),
        (
            lambda job_folder: (job_folder / "digits_train_lmdb" / "data.mdb").write_bytes(b"not a database" * 999),
            r"digits_train_lmdb.*layer 'mnist'",
        ),
        (
            lambda job_folder: (job_folder / "digits_train_lmdb" / "data.mdb").write_bytes(
                (CONFIGS / "digits_train_lmdb" / "data.mdb").read_bytes()[:100_000]
            ),
            r"digits_train_lmdb.*layer 'mnist'",
        ),
    ],
)
def test_an_invalid_job_is_refused_before_anything_is_written(
    job_folder: Path, capsys: pytest.CaptureFixture[str], damage_job: object, message: str
) -> None:
    damage_job(job_folder)  # type: ignore[operator]
    files_before = sorted(job_folder.rglob("*"))
    assert re.search(message, run_with_error(capsys, "train", "--solver=solver.prototxt"))
    assert sorted(job_folder.rglob("*")) == files_before


def test_an_empty_lmdb_is_refused(job_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for file in (job_folder / "digits_train_lmdb").iterdir():
        file.unlink()
    lmdb.open(str(job_folder / "digits_train_lmdb")).close()
    assert "has no records" in run_with_error(capsys, "train", "--solver=solver.prototxt")


def test_a_record_that_is_not_a_datum_is_reported(job_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (job_folder / "digits_train_lmdb" / "data.mdb").unlink()
    (job_folder / "digits_train_lmdb").rmdir()
    write_lmdb(job_folder / "digits_train_lmdb", [(b"00000000", b"\xff\xff\xff")])
    assert "00000000" in run_with_error(capsys, "train", "--solver=solver.prototxt")


def test_skip_bad_images_replaces_bad_images(job_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("digits_train_lmdb", "digits_test_lmdb"):
        records = Lmdb(CONFIGS / name).read_range(0, 64)
        records[5] = (records[5][0], b"\xff\xff\xff")
        shutil.rmtree(job_folder / name)
        write_lmdb(job_folder / name, records)
    (job_folder / "solver.prototxt").write_text(
        SOLVER.replace("max_iter: 1000", "max_iter: 2") + "test_initialization: false"
    )
    train = ["train", "--solver=solver.prototxt"]
    test = ["test", "--model=lenet_train_test.prototxt", "--weights=snapshots/lenet_iter_2.caffemodel"]
    bad_key = records[5][0].decode()
    assert f"record '{bad_key}' is not a Datum" in run_with_error(capsys, *train)
    for arguments in (train, [*test, "--iterations=3"]):
        assert main([*arguments, "--skip_bad_images"]) == 0
        assert (
            f"record '{bad_key}' is not a Datum, or is damaged; the next image replaces it" in capsys.readouterr().err
        )
    assert f"record '{bad_key}' is not a Datum" in run_with_error(capsys, *test)


def test_an_image_that_the_net_cannot_take_is_refused(job_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(job_folder / "digits_train_lmdb")
    sizes = (28, 28, 32)
    datums = [caffe_pb2.Datum(channels=1, height=n, width=n, data=bytes(n * n)) for n in sizes]
    write_lmdb(
        job_folder / "digits_train_lmdb", ((b"%d" % i, datum.SerializeToString()) for i, datum in enumerate(datums))
    )
    (job_folder / "lenet_train_test.prototxt").write_text(re.sub(r"batch_size: \d+", "batch_size: 1", NET))
    (job_folder / "solver.prototxt").write_text(SOLVER + "test_initialization: false")
    message = run_with_error(capsys, "train", "--solver=solver.prototxt")
    mismatch = "blob 0 has shape (500, 800), but a bottom of shape (1, 50, 5, 5) needs shape (500, 1250)"
    assert f"layer 'ip1' (InnerProduct): {mismatch}" in message


def test_databases_with_different_channels_are_reported(job_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(job_folder / "digits_test_lmdb")
    datum = caffe_pb2.Datum(channels=3, height=28, width=28, data=bytes(3 * 28 * 28), label=1)
    write_lmdb(job_folder / "digits_test_lmdb", [(b"0", datum.SerializeToString())])
    message = run_with_error(capsys, "train", "--solver=solver.prototxt")
    shapes = "[(20, 3, 5, 5), (20,)] in the test net, but [(20, 1, 5, 5), (20,)] in the train net"
    assert f"layer 'conv1' has blobs {shapes}; the data layers read images with 3 and 1 channels: convert" in message
    assert "force_gray" in message


def test_a_missing_database_is_named_with_net_phase_and_a_similar_folder(
    job_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (job_folder / "digits_test_lmdb").rename(job_folder / "digits_test_lmbd")
    message = run_with_error(capsys, "train", "--solver=solver.prototxt")
    assert message.startswith("caffejax: digits_test_lmdb: layer 'mnist' (Data): no such folder, but it is the source ")
    assert "in phase TEST of lenet_train_test.prototxt" in message
    assert message.endswith("; did you mean 'digits_test_lmbd'?")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--snapshot=a", "--weights=b"], "not both"),
        (["--snapshot=nowhere.orbax"], "no such snapshot"),
        (["--snapshot=auto", "--weights=nowhere.caffemodel"], "nowhere.caffemodel: no such file"),
        (["--weights=nowhere.caffemodel"], "nowhere.caffemodel"),
        (["--gpu=0"], "--device cpu"),
        (["--device=gpu:x"], "'x' is not a device number"),
        (["--device=cpu:99"], "there is no cpu 99"),
        (["--gpu=0", "--device=gpu:1"], "not both"),
    ],
)
def test_flags_that_cannot_work_are_refused(
    job_folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    import jax

    if arguments == ["--gpu=0"] and jax.default_backend() == "gpu":
        pytest.skip("there is a GPU here")
    assert message in run_with_error(capsys, "train", "-solver", "solver.prototxt", *arguments)


def test_missing_paths_are_reported_before_nets_are_built(job_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (job_folder / "lenet_train_test.prototxt").write_text('layer { name: "x" type: "Unheard" }')
    (job_folder / "solver.prototxt").write_text(
        re.sub('snapshot_prefix: ".*"', 'snapshot_prefix: "solver.prototxt/x"', SOLVER)
    )
    prefix_message = "caffejax: cannot write to snapshot prefix 'solver.prototxt/x': 'solver.prototxt' is not a folder"
    reason = "no such file; check the path and the working directory"
    output = run_with_error(capsys, "train", "--solver=solver.prototxt", "--weights=a.npz,solver.prototxt,b.caffemodel")
    assert output.splitlines() == [f"caffejax: a.npz: {reason}", f"caffejax: b.caffemodel: {reason}", prefix_message]
    (job_folder / "lenet_train_test.prototxt").unlink()
    output = run_with_error(capsys, "train", "--solver=solver.prototxt", "--snapshot=a.orbax")
    assert re.search(f"its net is 'lenet_train_test.*\n.*a.orbax: no such snapshot.*\n{prefix_message}", output)
    assert run_with_error(capsys, "test", "--model=a", "--weights=b").splitlines() == [
        f"caffejax: {name}: {reason}" for name in "ab"
    ]


def test_a_net_without_data_is_refused_before_weights_are_read(
    job_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (job_folder / "net.prototxt").write_text(
        'layer { name: "d" type: "Input" top: "d" input_param { shape { dim: 1 } } }'
    )
    output = run_with_error(capsys, "test", "--model=net.prototxt", "--weights=net.prototxt")
    assert "layer 'd' (Input): has no data" in output


def test_gpu_mode_without_a_gpu_warns_once(job_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import jax

    if jax.default_backend() != "cpu":
        pytest.skip("there is an accelerator here")
    text = SOLVER.replace("solver_mode: CPU", "solver_mode: GPU").replace("max_iter: 1000", "max_iter: 1")
    (job_folder / "solver.prototxt").write_text(text)
    assert main(["train", "--solver=solver.prototxt"]) == 0
    assert capsys.readouterr().err.count("sees no GPU") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "caffejax: error: the following arguments are required: COMMAND; see caffejax --help"),
        (("trian", "--solver=x"), "caffejax: error: there is no command 'trian'; did you mean 'train'?"),
        (("test", "--modle=x"), "caffejax test: error: there is no flag --modle; did you mean '--model'?"),
        (("time", "-model", "x", "-iters", "5"), "caffejax time: error: there is no flag -iters"),
        (("train", "--wieghts=x", "--snapshto=y"), "--wieghts; did you mean '--weights'?; there is no flag --snap"),
    ],
)
def test_unknown_flags_are_reported_before_missing_arguments(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exc_info:
        main(arguments)
    assert exc_info.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_values_that_look_like_flags_are_values(capsys: pytest.CaptureFixture[str], job_folder: Path) -> None:
    assert "no such file" in run_with_error(capsys, "test", "--model", "none", "--weights", "-1", "-level=-3")


def test_a_net_is_not_taken_for_a_solver(capsys: pytest.CaptureFixture[str], job_folder: Path) -> None:
    for flags in (
        ["--solver=lenet_train_test.prototxt"],
        ["lenet_train_test.prototxt"],
        ["-solver=x", "-solver=lenet_train_test.prototxt"],
    ):
        output = run_with_error(capsys, "train", *flags)
        assert output == "caffejax: lenet_train_test.prototxt: this is a net, not a solver; name the solver itself"
    output = run_with_error(capsys, "summary", "solver.prototxt")
    assert output == "caffejax: solver.prototxt: this is a solver, not a net; name the net itself"


def test_a_closed_pipe_prints_no_error(tmp_path: Path) -> None:
    net = tmp_path / "net.prototxt"
    net.write_text('layer { name: "d" type: "Input" top: "d" input_param { shape { dim: 1 } } }')
    command = [sys.executable, "-m", "caffejax", "summary", str(net)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_a_level_that_the_schema_cannot_hold_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exc_info:
        main(["summary", "net.prototxt", "--level=99999999999"])
    assert exc_info.value.code == 2
    assert "'99999999999' is not a level" in capsys.readouterr().err


def test_a_device_or_pipe_is_not_replaced_by_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net, pipe = tmp_path / "net.prototxt", tmp_path / "pipe"
    net.write_text('layer { name: "d" type: "Input" top: "d" input_param { shape { dim: 1 } } }')
    os.mkfifo(pipe)
    assert "is a device, a pipe or a socket" in run_with_error(capsys, "view", str(net), "--out", str(pipe))
    assert pipe.is_fifo()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("collect --model=none --out=no/a.npz", "no/a.npz: cannot be written: No such file or directory; create the"),
        ("compare none none --picture=no/a.png", "no/a.png: cannot be written"),
        ("export none --to=no/a.onnx", "no/a.onnx: cannot be written"),
        ("export none --to=file/a.stablehlo", "file/a.stablehlo: cannot be written: Not a directory"),
        ("export none --to=flax --out=folder", "folder: is a folder that is not empty"),
        ("draw none --weights=none --blob=a --out=no/a.png", "no/a.png: cannot be written"),
        ("draw_net none folder", "folder: cannot be written: Is a directory"),
        ("view none --out=no/a.html", "no/a.html: cannot be written"),
        ("view none --out=a.svg", "a.svg: this command writes an HTML page; `caffejax draw` draws pictures"),
        ("plot_training_log 0 a.xyz none", "a.xyz: '.xyz' is not a picture format"),
    ],
)
def test_unwritable_folders_are_refused_before_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "full").write_text("")
    assert run_with_error(capsys, *command.split()).startswith(f"caffejax: {message}")


@pytest.mark.parametrize("command", ["summary net", "summary net --memory", "collect --model=net --out=a.npz"])
def test_a_net_without_layers_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net").write_text('layer { name: "d" type: "Input" top: "d" include { stage: "s" } }')
    phase = "TRAIN" if "memory" in command else "TEST"
    assert run_with_error(capsys, *command.split()) == f"caffejax: net: the net has no layers in phase {phase}"


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="Linux's device that is always full")
def test_output_to_a_full_disk_is_an_error(tmp_path: Path) -> None:
    net = tmp_path / "net.prototxt"
    net.write_text('layer { name: "d" type: "Input" top: "d" input_param { shape { dim: 1 } } }')
    with open("/dev/full", "w") as full_device:
        command = [sys.executable, "-m", "caffejax", "summary", str(net)]
        result = subprocess.run(command, stdout=full_device, stderr=subprocess.PIPE, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr == "caffejax: the output cannot be written: No space left on device\n"


@pytest.mark.parametrize(
    "command",
    [
        "classify NAME out.npy --model_def=lenet_train_test.prototxt --pretrained_model=none --mean_file=",
        "run NAME",
        "summary NAME",
    ],
)
def test_a_name_that_no_file_can_have_is_refused(
    command: str, job_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "a" * 300
    assert name in run_with_error(capsys, *command.replace("NAME", name).split())
