"""Log a run to Weights & Biases or to MLflow, whichever is installed; to standard output if neither is.

Run lenet_from_arrays.py first: it writes lenet.prototxt.
"""

from collections.abc import Callable, Mapping

import numpy as np
from digits import load_digits, require_files

import caffejax

require_files("lenet.prototxt")

Record = Callable[[Mapping[str, float], int], object]  # values by name, and the iteration


class ExperimentLog(caffejax.Callback):
    """Passes the loss, the learning rate, speed and test outputs to a function."""

    def __init__(self, record: Record) -> None:
        self.record = record

    def on_display(self, solver, display):
        values = {"train/loss": display.loss, "train/lr": display.rate}
        if display.pace is not None:  # there is none after the last iteration
            values["speed/images_per_second"] = display.pace.images_per_second
        self.record(values, display.iteration)

    def on_test(self, solver, results):
        for test_index, scores in enumerate(results):
            scalars = {name: float(x) for name, x in scores.outputs.items() if np.size(x) == 1}
            self.record({f"test_{test_index}/{name}": x for name, x in scalars.items()}, solver.iteration)


def make_recorder(settings: Mapping[str, object]) -> Record:
    """Begin a run with these settings, and return the function that records its values."""
    try:
        import wandb

        run = wandb.init(project="caffejax", config=dict(settings), mode="offline")  # "online" uploads
        return lambda values, iteration: run.log(dict(values), step=iteration)
    except ImportError:
        pass
    try:
        import mlflow

        mlflow.start_run()
        mlflow.log_params(dict(settings))
        return lambda values, iteration: mlflow.log_metrics(dict(values), step=iteration)
    except ImportError:
        return lambda values, iteration: print(iteration, {name: float(f"{x:.3g}") for name, x in values.items()})


images, labels = load_digits("train")
test_images, test_labels = load_digits("test")
solver = caffejax.Solver(
    'net: "lenet.prototxt" base_lr: 0.01 momentum: 0.9 lr_policy: "fixed" max_iter: 40 display: 20 test_iter: 5 '
    'test_interval: 20 random_seed: 1 snapshot_prefix: "logged" snapshot_after_train: false',
    data={"data": images, "label": labels},
    test_data={"data": test_images, "label": test_labels},
)
solver.callbacks.append(ExperimentLog(make_recorder({"base_lr": solver.param.base_lr, "type": solver.param.type})))
solver.solve()
solver.close()
