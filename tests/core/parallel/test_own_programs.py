"""The program for several processes in docs/scaling.md, and what happens to it when a process makes a mistake."""

import re
import sys
from pathlib import Path

import pytest
from cluster import FOLDER, Cluster

REPOSITORY = FOLDER.parents[2]


def read_program() -> str:
    """Return the program of the page."""
    [program] = re.findall(r"```python train.py\n(.*?)```", (REPOSITORY / "docs" / "scaling.md").read_text(), re.DOTALL)
    return str(program)


def start(folder: Path, program: str) -> Cluster:
    """Start a program in two processes."""
    (folder / "configs").symlink_to(REPOSITORY / "configs")
    (folder / "train.py").write_text(program)
    return Cluster(folder, [[sys.executable, "train.py", "{address}", "2", str(i)] for i in range(2)])


def test_the_documented_program_trains_in_two_processes(tmp_path: Path) -> None:
    with start(tmp_path, read_program()) as cluster:
        assert cluster.wait() == [0, 0], cluster.read_output(0) + cluster.read_output(1)
        assert re.search(r"^iteration 10: loss [\d.]+, accuracy 0\.\d+$", cluster.read_output(0), re.MULTILINE)
        assert "iteration 10" not in cluster.read_output(1)
    assert (tmp_path / "snapshots" / "lenet.orbax" / "10").is_dir()


MISTAKES = {
    "one process raises": (
        "solver.snapshot()",
        "if process_id == 1: raise RuntimeError('my mistake')\nsolver.step(1000000)",
        ["caffejax: [process 0] process 1 has ended: RuntimeError: my mistake; start all", "RuntimeError: my mistake"],
    ),
    "all raise while a snapshot is written": (
        "solver.snapshot()",
        "solver.snapshot(wait=False)\nraise KeyError('mine')",
        ["KeyError: 'mine'", "KeyError: 'mine'"],
    ),
    "one process reads without end": (
        "solver.step(10)",
        """import time
from caffejax.core.parallel import coordination
coordination.WAIT_LIMIT = 3
solver.step(2)
if process_id == 1:
    solver.loader.take = lambda n: time.sleep(1000)
solver.step(10)""",
        [
            "caffejax: [process 0] waited 3 s for process 1, which reads the data of iteration 2; see its log",
            "caffejax: [process 1] process 0 has ended: waited 3 s for process 1",
        ],
    ),
    "different orders": (
        "solver.snapshot()",
        "solver.snapshot() if process_id else solver.restore('snapshots/lenet.orbax')",
        ["the processes do different things: restore a snapshot in process 0, find the folder of the snapshots"] * 2,
    ),
    "an epoch of other batches": (  # found while training goes on, not at its end
        """"configs/digits/lenet_solver.prototxt", parallel=caffejax.Parallel(batch="global"), resume="auto"
)
solver.step(10)""",
        """'''net_param { layer { name: "d" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
        layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 1 } }
        layer { name: "sum" type: "Reduction" bottom: "y" top: "sum" loss_weight: 1 } }
        base_lr: 0 lr_policy: "fixed" random_seed: 1''',
        data=lambda epoch: [{"x": [[epoch, 0, epoch > 2 and process_id]] * 2}] * 3,
        parallel=caffejax.Parallel(batch="global")
)
solver.step(1_000_000)""",
        ["process 1 has ended: the processes read different data", "the processes read different data: data, epoch 3"],
    ),
}


def test_epochs_that_agree_train(tmp_path: Path) -> None:
    """The control of the last mistake."""
    old, new, _ = MISTAKES["an epoch of other batches"]
    program = (
        read_program()
        .replace(old, new.replace("process_id", "0").replace("1_000_000", "10"))
        .partition("solver.snapshot()")[0]
    )
    with start(tmp_path, program + "solver.close()") as cluster:
        assert cluster.wait() == [0, 0], cluster.read_output(0) + cluster.read_output(1)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_ends_all_processes(tmp_path: Path, name: str) -> None:
    old, new, messages = MISTAKES[name]
    program = read_program()
    assert old in program
    with start(tmp_path, program.replace(old, new)) as cluster:
        assert cluster.wait(60) == [1, 1], cluster.read_output(0) + cluster.read_output(1)
        for i, message in enumerate(messages):
            assert message in cluster.read_output(i)
            assert "stack trace" not in cluster.read_output(i)
