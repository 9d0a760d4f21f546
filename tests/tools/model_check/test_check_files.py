"""Recognition of model files, and their reports: phases, missing files, weights and data sources."""

import time
from pathlib import Path

import numpy as np
import pytest

from caffejax.base.errors import Problem
from caffejax.core.checkpoints.caffemodel import write_caffemodel
from caffejax.core.graph import make_net_state
from caffejax.core.schema import read_net
from caffejax.tools.model_check import Report, check_files
from caffejax.tools.model_check.check import check_file
from caffejax.tools.model_check.check_report import make_findings
from caffejax.tools.model_check.model_files import detect_kind, find_model_files
from caffejax.tools.model_check.placeholder_sources import build_assumed_graphs

INPUT = 'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } } }\n'
CONV = """layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }\n"""
LABELS = """layer { name: "label" type: "Input" top: "label" include { phase: TRAIN }
  input_param { shape { dim: 2 } } }\n"""
LOSS = 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" %s }\n'
IP = """layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip"
  inner_product_param { num_output: 5 } }\n"""
DATA = """layer { name: "data" type: "%s" top: "data" top: "label" %s include { phase: TRAIN } }\n"""


@pytest.fixture
def check_text(tmp_path: Path):
    def run_check(text: str, name: str = "net.prototxt") -> Report:
        (tmp_path / name).write_text(text)
        return check_file(tmp_path / name)

    return run_check


def get_outcomes(report: Report) -> dict[str, str]:
    return {phase.state: phase.outcome for phase in report.phases}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (INPUT, "net"),
        ('input: "data" input_dim: 1', "net"),
        ("layers { type: RELU }", "net"),
        ('# layer {\nbase_lr: 0.1\nnet: "x"', "solver"),
        ('net_param { layer { name: "x" } } type: "SGD"', "solver"),
        ("item { name: 'layer {' id: 1 }", "other"),
        ("name: 'nothing'", "other"),
        ("", "other"),
        ("}} layer { name: 'x' }", "net"),
        ("leyer { name: 'x' }", "net"),
        ("LAYERS { name: 'x' }", "net"),
        ("label { name: 'x' }", "other"),
        ("output { name: 'x' }", "other"),
    ],
)
def test_nets_and_solvers_are_distinguished_by_their_fields(text: str, kind: str) -> None:
    assert detect_kind(text) == kind


def test_folders_are_searched_without_duplicates(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    names = ["a.prototxt", "b/c.pt", "b/d.pbtxt", "b/e.txt", "f.caffemodel"]
    for name in names:
        (tmp_path / name).write_text("")
    result = [p.relative_to(tmp_path).as_posix() for p in find_model_files([tmp_path, tmp_path / "a.prototxt"])]
    assert result == ["a.prototxt", "b/c.pt", "b/d.pbtxt"]


def test_a_net_that_loads_has_its_sizes(check_text) -> None:
    report = check_text(INPUT + CONV + IP)
    assert report.loads
    assert get_outcomes(report) == {"TRAIN": "loads", "TEST": "loads"}
    test_phase = report.phases[1]
    parameters = 4 * 27 + 4 + 5 * 144 + 5
    activations = 2 * (3 * 64 + 4 * 36 + 5)
    assert (test_phase.parameters, test_phase.memory, test_phase.compiled) == (
        parameters,
        4 * (parameters + activations),
        2,
    )
    assert test_phase.on_host == ()


def test_a_phase_without_its_data_is_no_failure(check_text) -> None:
    report = check_text(INPUT + LABELS + CONV + IP + LOSS % "")
    assert get_outcomes(report) == {"TRAIN": "loads", "TEST": "no data"}
    assert report.loads
    assert not check_text(INPUT + CONV + IP + LOSS % "").loads  # no layer ever gives the labels
    deploy_report = check_text(INPUT + CONV + IP + LOSS % "include { phase: TRAIN }")
    assert get_outcomes(deploy_report) == {"TRAIN": "no data", "TEST": "loads"}
    assert deploy_report.loads
    stage_report = check_text(INPUT.replace("input_param", "include { phase: TEST stage: 'never' } input_param") + CONV)
    assert get_outcomes(stage_report) == {"TRAIN": "no data", "TEST": "no data", "TEST+never": "loads"}
    assert stage_report.loads


def test_stages_are_separate_states_if_they_differ(check_text) -> None:
    staged_layer = 'layer { name: "relu" type: "ReLU" bottom: "conv" top: "relu" include { stage: "deploy" } }'
    assert set(get_outcomes(check_text(INPUT + CONV + staged_layer))) == {
        "TRAIN",
        "TEST",
        "TRAIN+deploy",
        "TEST+deploy",
    }
    assert set(
        get_outcomes(check_text(INPUT + CONV + staged_layer.replace("include { stage", "include { not_stage")))
    ) == {
        *("TRAIN", "TEST", "TRAIN+deploy", "TEST+deploy"),
    }


def test_everything_missing_is_reported_with_the_layers(check_text) -> None:
    text = (
        INPUT
        + CONV
        + "".join(f'layer {{ name: "u{i}" type: "Unheard" bottom: "conv" top: "u{i}" }}\n' for i in range(2))
        + 'layer { name: "after" type: "ReLU" bottom: "u1" top: "after" }\n'
        + 'layer { name: "pool" type: "Pooling" bottom: "conv" top: "p"'
        + "  pooling_param { kernel_size: 2 torch_pooling: true } }"
        + 'layer { name: "own" type: "Python" bottom: "conv" top: "o"'
        + '  python_param { module: "absent_module" layer: "L" } }'
        + 'layer { name: "wide" type: "Pooling" bottom: "conv" top: "w" pooling_param { kernel_size: 99 } }'
        + 'layer { name: "typo" type: "ReLU" bottom: "cnv" top: "t" }'
        + 'layer { name: "fill" type: "InnerProduct" bottom: "conv" top: "f"'
        + '  inner_product_param { num_output: 2 weight_filler { type: "xavir" } } }'
    )
    report = check_text(text)
    assert not report.loads
    assert [(f.cause, f.layers) for f in report.phases[1].findings] == [
        ("type", ("u0", "u1")),
        ("setting", ("pool",)),
        ("blob", ("typo",)),
        ("python", ("own",)),
        ("shape", ("wide",)),
        ("shape", ("fill",)),
    ]
    assert str(report.phases[1].findings[0]) == "unknown layer type 'Unheard' (2 layers: 'u0', 'u1')"


def test_blobs_of_a_layer_that_the_state_excludes_are_one_finding(check_text) -> None:
    slice_layer = (
        'layer { name: "two" type: "Slice" bottom: "data" top: "a" top: "b" top: "c" include { phase: TRAIN } }\n'
    )
    reading_layers = "".join(f'layer {{ name: "r{x}" type: "ReLU" bottom: "{x}" top: "r{x}" }}\n' for x in "abc")
    (finding,) = check_text(INPUT + slice_layer + reading_layers).phases[1].findings
    assert finding.message == (
        "unknown bottom blob 'a' (bottom index 0): only layer 'two' produces it and 2 more blobs, "
        "and its rules exclude it in this state"
    )


def test_mistakes_in_the_text_are_reported_with_lines(check_text) -> None:
    report = check_text(INPUT + CONV.replace("num_output: 4", "num_output: four").replace("kernel_size", "kernelsize"))
    assert [f.cause for f in report.findings] == ["text", "text"]
    assert report.findings[0].message.startswith("line 3: num_output: expected an integer, found 'four'")
    assert [
        f.message for f in check_text(f"nonsense: 1 {INPUT} {CONV}".replace("Conv", "Cnov")).phases[0].findings
    ] == ["unknown layer type 'Cnovolution'; did you mean 'Convolution'?"]


def test_missing_data_is_no_problem(check_text) -> None:
    data = DATA % ("Data", 'data_param { source: "gone" batch_size: 3 } transform_param { crop_size: 8 }')
    report = check_text(data + CONV + IP + LOSS % "")
    assert report.loads
    (assumption,) = report.phases[0].assumed
    assert "'data' (Data) is absent and was not opened; its tops are assumed to be 3x3x8x8, 3" in assumption
    assert report.phases[0].parameters == 4 * 27 + 4 + 5 * 144 + 5


def test_absent_labels_of_detectnet_have_rows_of_16(check_text) -> None:
    report = check_text("""
      layer { name: "images" type: "Data" top: "x" data_param { source: "absent" batch_size: 2 } }
      layer { name: "boxes" type: "Data" top: "y" data_param { source: "absent_too" batch_size: 2 } }
      layer { name: "transform" type: "DetectNetTransformation" bottom: "x" bottom: "y" top: "pixels" top: "grid"
        detectnet_groundtruth_param { stride: 16 image_size_x: 64 image_size_y: 32 object_class { src: 1 dst: 0 } } }
    """)
    assert report.loads
    assert "tops are assumed to be 2x1x51x16" in str(report.phases[0].assumed)


@pytest.mark.parametrize(
    ("settings", "shapes"),
    [
        ("images_per_blob: 2", "3x6x8x8, 3"),
        ("images_per_blob: 2 output_all_labels: true", "3x6x8x8, 3x2"),
        ("label_type: MULTIPLE", "3x3x8x8, 3x64"),
        ("label_type: MULTIPLE one_hot_label_size: 7", "3x3x8x8, 3x7x1x1"),
    ],
)
def test_absent_data_of_mycaffe_has_pairs_of_images_or_several_labels(
    check_text, tmp_path: Path, settings: str, shapes: str
) -> None:
    """Drawings and summaries have the shapes; training refuses most of these settings, and so does the check."""
    text = DATA % (
        "Data",
        f'data_param {{ source: "gone" batch_size: 3 {settings} }} transform_param {{ crop_size: 8 }}',
    )
    net = read_net(text)
    assumed = next(build_assumed_graphs(net, make_net_state(net, "TRAIN"), tmp_path / "net.prototxt"))
    assert assumed.assumptions[0].endswith(shapes)
    report = check_text(text)
    assert report.loads == (settings == "label_type: MULTIPLE")
    assert report.loads or "is not supported" in str(report.phases[0].findings[0])


@pytest.mark.parametrize(
    ("settings", "num_tops", "channels"),
    [("slice_point: 1", 2, 2), ("slice_point: 3 slice_point: 6", 3, 9), ("axis: 2 slice_point: 1", 2, 3)],
)
def test_absent_data_has_the_channels_that_slice_layers_divide_equally(
    check_text, settings: str, num_tops: int, channels: int
) -> None:
    data = DATA % ("Data", 'data_param { source: "gone" batch_size: 3 } transform_param { crop_size: 8 }')
    tops = " ".join(f'top: "part{i}"' for i in range(num_tops))
    slices = f'layer {{ name: "parts" type: "Slice" bottom: "data" {tops} slice_param {{ {settings} }} }}'
    report = check_text(data + slices)
    assert report.loads
    assert report.phases[0].assumed[0].endswith(f"3x{channels}x8x8, 3")


@pytest.mark.parametrize(
    ("pools", "upsample", "size"),
    [
        (2, "upsample_h: 9 upsample_w: 21", "18x42"),  # the first pooling layer halves the images to 9 x 21
        (4, "pad_out_h: true", "360x480"),  # SegNet's images, of which the third pooling layer leaves 45 rows
    ],
)
def test_images_have_the_size_that_upsample_layers_need(check_text, pools: int, upsample: str, size: str) -> None:
    encoder = "".join(
        f'layer {{ name: "pool{n}" type: "Pooling" bottom: "{f"pool{n - 1}" if n else "x"}" top: "pool{n}" '
        f'top: "mask{n}" pooling_param {{ kernel_size: 2 stride: 2 }} }}'
        for n in range(pools)
    )
    report = check_text(f"""
      layer {{ name: "data" type: "DenseImageData" top: "x" top: "label"
        dense_image_data_param {{ source: "/absent/train.txt" batch_size: 4 label_divide_factor: 2 }} }}
      {encoder}
      layer {{ name: "up" type: "Upsample" bottom: "pool{pools - 1}" bottom: "mask{pools - 1}" top: "up"
        upsample_param {{ scale: 2 {upsample} }} }}
      layer {{ name: "next" type: "Upsample" bottom: "up" bottom: "mask{pools - 2}" top: "next" }}
    """)
    assert report.loads
    label = "x".join(str(int(side) // 2) for side in size.split("x"))
    assert f"tops are assumed to be 4x3x{size}, 4x1x{label}" in str(report.phases[0].assumed)


def test_images_of_unknown_size_have_no_counts(check_text) -> None:
    data = DATA % ("ImageData", 'image_data_param { source: "gone.txt" batch_size: 3 }')
    phase = check_text(data + CONV + IP).phases[0]
    assert (phase.outcome, phase.parameters) == ("loads", None)
    assert phase.assumed[0].endswith("(a guess, because no setting states the size of the images)")
    reshape_layer = (
        'layer { name: "fixed" type: "Reshape" bottom: "conv" top: "f" reshape_param { shape { dim: 3 dim: 2704 } } }'
    )
    assert check_text(data + CONV + reshape_layer).phases[0].outcome == "loads"  # 28 x 28 fits
    hdf5_layer = DATA % ("HDF5Data", 'hdf5_data_param { source: "gone.txt" batch_size: 3 }')
    assert (
        "do not determine the shapes of its tops; the layers after it were not checked"
        in check_text(hdf5_layer + CONV).phases[0].assumed[0]
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('item { name: "cat" label: 1 display_name: "cat" }', "the file is a label map, with names of classes"),
        ("item { id: 1 } rows: 2", "line 1: NetParameter has no field 'item'"),
        ('name: "nothing"', "the file has no layers, no inputs and no solver settings"),
    ],
)
def test_other_files_have_a_reason(check_text, text: str, reason: str) -> None:
    report = check_text(text)
    assert (report.kind, [str(f) for f in report.findings]) == ("other", [reason])


def test_weights_beside_a_net_are_compared(check_text, tmp_path: Path) -> None:
    net = read_net(INPUT + CONV + IP)
    blobs = {"conv": [np.zeros((4, 3, 3, 3)), np.zeros(4)], "ip": [np.zeros((5, 144)), np.zeros(5)]}
    write_caffemodel(tmp_path / "net.caffemodel", net, blobs)
    report = check_text(INPUT + CONV + IP)
    (result,) = report.phases[0].weights
    assert (result.matched, result.mismatched, result.missing, result.unused) == (2, (), (), 0)
    assert report.loads

    changed_report = check_text(
        INPUT + CONV + IP.replace("num_output: 5", "num_output: 6") + IP.replace('"ip"', '"new"')
    )
    (result,) = changed_report.phases[0].weights
    assert (result.matched, result.missing) == (1, ("new",))
    assert [f.layers for f in result.mismatched] == [("ip",), ("ip",)]
    assert "blob 0 is 5 x 144 in the file, 6 x 144 in the net" in result.mismatched[0].message
    assert not changed_report.loads

    (tmp_path / "net.caffemodel").write_bytes(b"no weights")
    assert check_text(INPUT + CONV).phases[0].weights[0].mismatched


def test_the_assumed_size_fits_the_weights(check_text, tmp_path: Path) -> None:
    data = DATA % ("ImageData", 'image_data_param { source: "gone.txt" batch_size: 1 }')
    net = read_net(data + CONV + IP)
    blobs = {"conv": [np.zeros((4, 3, 3, 3)), np.zeros(4)], "ip": [np.zeros((5, 4 * 30 * 30)), np.zeros(5)]}
    write_caffemodel(tmp_path / "net.caffemodel", net, blobs)
    phase = check_text(data + CONV + IP).phases[0]
    assert "1x3x32x32" in phase.assumed[0]
    assert (phase.weights[0].matched, phase.parameters) == (2, 4 * 27 + 4 + 5 * 3600 + 5)


def test_solvers_are_checked_by_their_settings_and_the_nets_inside(check_text, tmp_path: Path) -> None:
    (tmp_path / "there.prototxt").write_text(INPUT)
    valid_report = check_text('net: "there.prototxt" base_lr: 1 lr_policy: "fixed"', "a.prototxt")
    assert (valid_report.kind, valid_report.loads, valid_report.notes) == (
        "solver",
        True,
        ("its net there.prototxt is checked separately",),
    )
    invalid_report = check_text('net: "gone" base_lr: 1 lr_policy: "fixd" larc_turbo: true', "b.prototxt")
    assert [f.cause for f in invalid_report.findings] == ["setting", "setting"]
    assert "its net gone is missing" in invalid_report.notes
    inline_report = check_text(f'net_param {{ {INPUT} }} base_lr: 1 lr_policy: "fixed"', "c.prototxt")
    assert get_outcomes(inline_report) == {"TRAIN": "loads", "TEST": "loads"}


def test_ignored_fork_fields_are_notes_once_each(check_text) -> None:
    text = "default_forward_type: FLOAT16\n" + INPUT + CONV.replace("kernel_size", "conv_algorithm: 'x' kernel_size")
    report = check_text(text.replace("'x'", '"winograd"'))
    assert report.loads
    assert [note.split(" is ignored")[0] for note in report.notes] == [
        "default_forward_type (of nvidia)",
        "convolution_param.conv_algorithm (of intel)",
    ]


def test_a_crash_and_a_hang_do_not_stop_other_checks(tmp_path: Path) -> None:
    python_layer = (
        'layer { name: "own" type: "Python" bottom: "data" top: "o" python_param { module: "%s" layer: "L" } }'
    )
    for name, code in {
        "crash": "import os; os._exit(3)",
        "hang": "import time; time.sleep(600)",
        "bad": "1 / 0",
    }.items():
        (tmp_path / f"{name}_module.py").write_text(code)
        (tmp_path / f"{name}.prototxt").write_text(INPUT + python_layer % f"{name}_module")
    (tmp_path / "z.prototxt").write_text(INPUT + CONV)
    files = list(find_model_files([tmp_path]))
    start = time.monotonic()
    reports = {Path(r.file).stem: r for r in check_files(files, jobs=2, timeout=5)}
    assert list(reports) == ["bad", "crash", "hang", "z"]
    assert reports["z"].loads
    messages = {name: [f.message for f in reports[name].findings] for name in ("bad", "crash", "hang")}
    assert messages["crash"] == ["the process that checked it ended with code 3"]
    assert messages["hang"] == ["is still being checked after 5 s; raise --timeout to wait longer"]
    assert messages["bad"] == ["checking it raised ZeroDivisionError: division by zero"]
    assert time.monotonic() - start < 60


@pytest.mark.parametrize(
    ("lines", "location"),
    [((), ""), ((3,), "line 3: "), ((3, 9, 9), "lines 3, 9: "), ((3, 9, 12, 15, 20), "lines 3, 9, 12 and 2 more: ")],
)
def test_a_repeated_problem_is_one_finding_with_its_first_lines(lines: tuple[int, ...], location: str) -> None:
    problems = [Problem("wrong", line=line) for line in lines or (None,)]
    assert [finding.message for finding in make_findings(problems, "text")] == [f"{location}wrong"]
