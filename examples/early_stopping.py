"""Stop when the test loss has not improved for a while, and go back to the best parameters.

Run lenet_from_arrays.py first: it writes lenet.prototxt.
"""

from digits import load_digits, require_files

import caffejax

require_files("lenet.prototxt")


class EarlyStopping(caffejax.Callback):
    """Requests a stop after `patience` consecutive tests without a new best result."""

    def __init__(self, output: str, patience: int) -> None:
        self.output, self.patience = output, patience
        self.best_value, self.best_iteration, self.num_worse_tests = float("inf"), 0, 0

    def on_test(self, solver, results):
        value = float(results[0].outputs[self.output])
        if value < self.best_value:
            self.best_value, self.best_iteration, self.num_worse_tests = value, solver.iteration, 0
        else:
            self.num_worse_tests += 1
        if self.num_worse_tests == self.patience:
            solver.request("stop")


images, labels = load_digits("train")
test_images, test_labels = load_digits("test")
solver = caffejax.Solver(
    'net: "lenet.prototxt" base_lr: 0.02 momentum: 0.9 lr_policy: "fixed" max_iter: 1000 test_iter: 5 '
    'test_interval: 10 snapshot: 10 random_seed: 1 snapshot_prefix: "early"',
    data={"data": images[:128], "label": labels[:128]},  # few, so that they are soon known by heart
    test_data={"data": test_images[:320], "label": test_labels[:320]},  # a test's five batches: all tests are equal
    keep_best="loss",
    keep_last=1,
    checkpoint_only=True,
)
early_stopping = EarlyStopping("loss", patience=5)
solver.callbacks.append(early_stopping)
solver.solve()
best_iteration, best_loss = early_stopping.best_iteration, early_stopping.best_value
print(f"stopped after {solver.iteration} iterations; the best test was at {best_iteration}, loss {best_loss:.3f}")
solver.restore(f"early.orbax/{best_iteration}")
(scores,) = solver.test()
print(f"again with the best: loss {scores.outputs['loss']:.3f}")
solver.close()
