"""Training logs: Caffe's of any age and ours, as tables."""

import csv
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from caffejax.base.errors import CaffejaxError
from caffejax.cli import main
from caffejax.tools.logs import parse_log, read_log, write_csv

NAN = float("nan")

CURRENT_LOG = """
I0131 23:59:58.000000  4242 solver.cpp:48] Initializing solver from parameters:
Iteration 7, lr = 9 in a line without a time
I0131 23:59:59.000000  4242 solver.cpp:279] Solving LeNet
I0131 23:59:59.100000  4242 solver.cpp:280] Learning Rate Policy: inv
I0131 23:59:59.200000  4242 solver.cpp:337] Iteration 0, Testing net (#0)
I0201 00:00:00.500000  4242 solver.cpp:404]     Test net output #0: accuracy = 0.1
I0201 00:00:00.500000  4242 solver.cpp:404]     Test net output #1: loss = 2.5 (* 1 = 2.5 loss)
I0201 00:00:01.000000  4242 solver.cpp:228] Iteration 0 (-1.4e-45 iter/s, 1.8s/100 iters), loss = 2.4
I0201 00:00:01.250000  4242 solver.cpp:244]     Train net output #0: loss = 2.25 (* 1 = 2.25 loss)
I0201 00:00:01.500000  4242 sgd_solver.cpp:106] Iteration 0, lr = 0.01
W0201 00:00:01.600000  4242 net.cpp:1] a warning in between
I0201 00:00:02.000000  4242 solver.cpp:228] Iteration 100 (80.5 iter/s, 1.2s/100 iters), loss = nan
I0201 00:00:02.000000  4242 solver.cpp:244]     Train net output #0: loss = -nan (* 1 = -nan loss)
I0201 00:00:02.500000  4242 sgd_solver.cpp:106] Iteration 100, lr = 9.9e-05
I0201 00:00:03.000000  4242 solver.cpp:454] Snapshotting to binary proto file lenet_iter_200.caffemodel
I0201 00:00:03.100000  4242 solver.cpp:317] Iteration 200, loss = 0.125
I0201 00:00:03.200000  4242 solver.cpp:337] Iteration 200, Testing net (#0)
I0201 00:00:04.000000  4242 solver.cpp:404]     Test net output #0: accuracy = 1
I0201 00:00:04.000000  4242 solver.cpp:404]     Test net output #1: loss = 1e-05 (* 1 = 1e-05 loss)
I0201 00:00:04.100000  4242 solver.cpp:322] Optimization Done.
"""


def write_log(folder: Path, text: str) -> Path:
    file = folder / "train.log"
    file.write_text(text)
    return file


def make_row(iteration: int, seconds: float, rate: float, **outputs: float) -> dict[str, Any]:
    return pytest.approx(
        {"NumIters": iteration, "Seconds": seconds, "LearningRate": rate, **outputs}, nan_ok=True, abs=1e-9
    )


def test_a_log_of_caffe_is_parsed(tmp_path: Path) -> None:
    log = read_log(write_log(tmp_path, CURRENT_LOG))
    assert log.train == [make_row(0, 2.25, 0.01, loss=2.25), make_row(100, 3, 0.01, loss=NAN)]
    assert log.test == [
        make_row(0, 1.5, 9.9e-05, accuracy=0.1, loss=2.5),
        make_row(200, 5, 9.9e-05, accuracy=1, loss=1e-05),
    ]
    assert log.loss == [
        make_row(0, 2, 0.01, loss=2.4),
        make_row(100, 3, 0.01, loss=NAN),
        make_row(200, 4.1, 9.9e-05, loss=0.125),
    ]
    assert log.rate == [make_row(0, 2.5, 0.01), make_row(100, 3.5, 9.9e-05)]
    assert parse_log(tmp_path / "train.log")[1] == log.test
    assert list(log.test[0]) == ["NumIters", "Seconds", "LearningRate", "accuracy", "loss"]


def test_the_rate_of_the_first_row_alone_is_unknown(tmp_path: Path) -> None:
    (entry,) = read_log(write_log(tmp_path, "\n".join(CURRENT_LOG.splitlines()[:8]))).test
    assert math.isnan(entry["LearningRate"])


LINE = "I{} {}.000000 1 solver.cpp:1] {}"


def make_log(*parts: tuple[str, str, str]) -> str:
    return "\n".join(LINE.format(*part) for part in parts)


def test_lines_of_older_versions_are_read(tmp_path: Path) -> None:
    text = make_log(
        ("0302", "10:00:00", "Solving CaffeNet"),
        ("0302", "10:00:01", "Iteration 20, lr = 0.1"),
        ("0302", "10:00:01", "Iteration 20, loss = 0.5"),
        ("0302", "10:00:02", "Train net output #0: prob = .5"),
    )
    log = read_log(write_log(tmp_path, text))
    assert log.loss == [make_row(20, 1, 0.1, loss=0.5)]
    assert log.train == [make_row(20, 2, 0.1, prob=0.5)]


def test_several_test_nets_have_rows_and_repeated_outputs_have_columns(tmp_path: Path) -> None:
    format_output = "    Test net output #{}: {} = {}".format
    net = [
        format_output(0, "acc", 1),
        format_output(1, "acc", 2),
        format_output(2, "loss", 3),
        format_output(3, "acc", 4),
    ]
    text = make_log(
        ("0302", "10:00:00", "Iteration 0, Testing net (#0)"),
        *(("0302", "10:00:00", line) for line in net),
        ("0302", "10:00:00", "Iteration 0, Testing net (#1)"),
        *(("0302", "10:00:00", line) for line in net[:1]),
        ("0302", "10:00:00", "Iteration 5, Testing net (#0)"),
        *(("0302", "10:00:00", line) for line in net),
    )
    values = {"acc": 1, "acc[1]": 2, "loss": 3, "acc[2]": 4}
    assert read_log(write_log(tmp_path, text)).test == [
        make_row(0, 0, NAN, **values),
        make_row(0, 0, NAN, acc=1),
        make_row(5, 0, NAN, **values),
    ]


def make_solver_log(start: int, end: int, loss: float) -> list[str]:
    """Return the log of a solver that tests and displays every 10 iterations."""
    log = ["Solving LeNet"]
    for iteration in range(start, end + 1, 10):
        log += [f"Iteration {iteration}, Testing net (#0)", f"    Test net output #0: accuracy = {loss}"]
        log += [f"Iteration {iteration}, loss = {loss}", f"Iteration {iteration}, lr = {loss / 10}"]
    return log


@pytest.mark.parametrize(
    ("first_range", "resumed_range", "iterations", "losses"),
    [
        ((0, 20), (20, 30), [0, 10, 20, 30], [2, 2, 1, 1]),
        ((0, 30), (10, 20), [0, 10, 20], [2, 1, 1]),
        ((0, 30), (0, 10), [0, 10], [1, 1]),
    ],
)
def test_rows_of_an_appended_run_replace_earlier_rows(
    tmp_path: Path,
    first_range: tuple[int, int],
    resumed_range: tuple[int, int],
    iterations: list[int],
    losses: list[float],
) -> None:
    text = make_log(
        *(
            ("0302", "10:00:00", line)
            for line in [*make_solver_log(*first_range, 2), *make_solver_log(*resumed_range, 1)]
        )
    )
    log = read_log(write_log(tmp_path, text))
    for rows, column in ((log.loss, "loss"), (log.test, "accuracy")):
        assert [r["NumIters"] for r in rows] == iterations
        assert [r[column] for r in rows] == losses
    assert [r["NumIters"] for r in log.rate] == iterations


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("nan", NAN),
        ("-inf", -math.inf),
        ("1.#QNAN", NAN),
        ("-1.#IND", NAN),
        ("1.#INF", math.inf),
        ("-1.#INF", -math.inf),
    ],
)
def test_numbers_that_are_not_finite_are_read(tmp_path: Path, text: str, number: float) -> None:
    (entry,) = read_log(write_log(tmp_path, make_log(("0302", "10:00:00", f"Iteration 1, loss = {text}")))).loss
    np.testing.assert_equal(entry["loss"], number)


@pytest.mark.parametrize(
    ("start_date", "end_date", "seconds"),
    [
        ("1231", "0101", 86400),
        ("20231231", "20240102", 2 * 86400),
        ("20240228", "20240301", 2 * 86400),
        ("20230228", "20230301", 86400),
    ],
)
def test_seconds_are_counted_across_new_year_and_leap_days(
    tmp_path: Path, start_date: str, end_date: str, seconds: int
) -> None:
    text = make_log((start_date, "10:00:00", "Solving X"), (end_date, "10:00:00", "Iteration 1, loss = 1"))
    (entry,) = read_log(write_log(tmp_path, text)).loss
    assert entry["Seconds"] == seconds


def test_lines_with_impossible_dates_are_ignored(tmp_path: Path) -> None:
    text = make_log(("9999", "10:00:00", "Iteration 1, loss = 1"), ("0101", "10:00:00", "Iteration 2, loss = 2"))
    assert [r["NumIters"] for r in read_log(write_log(tmp_path, text)).loss] == [2]


@pytest.mark.parametrize("text", ["", "no log\n", "I0131 23:59:59.0 1 a.cpp:1] Solving X\n", "\0\xff binary"])
def test_files_that_are_not_logs_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "x.log"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(CaffejaxError, match=r"x\.log: this is not the log of a training run"):
        read_log(file)
    for name in ("absent.log", "."):
        with pytest.raises(CaffejaxError, match="cannot be read"):
            read_log(tmp_path / name)


def test_a_table_has_gaps_where_a_row_lacks_a_column(tmp_path: Path) -> None:
    rows = [{"a": 1.0, "b": 0.5}, {"a": 2.0, "c": NAN}]
    write_csv(tmp_path / "t.csv", rows, delimiter=";")
    assert (tmp_path / "t.csv").read_text() == "a;b;c\n1.0;0.5;\n2.0;;nan\n"


SOLVER = """
base_lr: 0.1 lr_policy: "fixed" max_iter: 4 display: 2 test_interval: 3 test_iter: 1 snapshot_after_train: false
net_param {
  layer { name: "data" type: "DummyData" top: "x" top: "label" dummy_data_param {
    shape { dim: 8 dim: 3 } shape { dim: 8 } data_filler { type: "gaussian" } data_filler { type: "constant" } } }
  layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 4 } }
  layer { name: "accuracy" type: "Accuracy" bottom: "y" bottom: "label" top: "accuracy" include { phase: TEST } }
  layer { name: "loss" type: "SoftmaxWithLoss" bottom: "y" bottom: "label" top: "loss" }
}
"""


def test_a_log_of_caffejax_is_parsed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    assert main(["train", f"--solver={tmp_path / 'solver.prototxt'}"]) == 0
    text = capsys.readouterr().err
    (tmp_path / "run.log").write_text(text)
    assert main(["parse_log", str(tmp_path / "run.log"), str(tmp_path)]) == 0
    with open(tmp_path / "run.log.test") as file:
        test_rows = list(csv.DictReader(file))
    assert [float(r["NumIters"]) for r in test_rows] == [0, 3]
    accuracies = re.findall(r"Test net output #0: accuracy = (\S+)", text)
    assert [float(r["accuracy"]) for r in test_rows] == [float(n) for n in accuracies]
    with open(tmp_path / "run.log.train") as file:
        train_rows = list(csv.DictReader(file))
    assert [float(r["NumIters"]) for r in train_rows] == [0, 2]
    seconds = [float(r["Seconds"]) for r in train_rows]
    assert 0 < seconds[0] <= seconds[1]


def test_terminal_escapes_are_removed(tmp_path: Path) -> None:
    lines = ["\x1b[2K\rI1124 10:00:00.000000 12 solver.cpp:218] Iteration 0, loss = 2.5\r", "\x1b[36m1/9\x1b[0m\r"]
    lines.append("\x1b[1A\x1b[2KI1124 10:00:10.000000 12 solver.cpp:218] Iteration 100, loss = 1.5")
    (tmp_path / "tty.log").write_text("\n".join(lines), newline="")
    assert [(row["NumIters"], row["loss"]) for row in read_log(tmp_path / "tty.log").loss] == [(0, 2.5), (100, 1.5)]
