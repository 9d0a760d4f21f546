"""Find a learning rate: raise it at each iteration, and see where the loss falls fastest and where it explodes.

Run lenet_from_arrays.py first: it writes lenet.prototxt.
"""

import numpy as np
from digits import load_digits, require_files

import caffejax

require_files("lenet.prototxt")


class RateFinder(caffejax.Callback):
    """Records rate and loss of every iteration, and requests a stop when the loss is four times the lowest so far."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.losses: list[float] = []

    def on_display(self, solver, display):
        self.rates.append(display.rate)
        self.losses.append(display.loss)
        if display.loss > 4 * min(self.losses):
            solver.request("stop")

    def find_steepest_rate(self) -> float:
        """Return the rate at which the loss, smoothed over a few iterations, falls fastest."""
        smoothed_losses = np.convolve(self.losses, np.ones(5) / 5, mode="valid")
        return self.rates[int(np.gradient(smoothed_losses).argmin()) + 2]


images, labels = load_digits("train")
solver = caffejax.Solver(
    'net: "lenet.prototxt" base_lr: 1e-4 lr_policy: "exp" gamma: 1.1 momentum: 0.9 display: 1 max_iter: 150 '
    'random_seed: 1 snapshot_prefix: "finder" snapshot_after_train: false',
    data={"data": images, "label": labels},
)
finder = RateFinder()
solver.callbacks.append(finder)
solver.step(150)
solver.close()
for rate, loss in list(zip(finder.rates, finder.losses, strict=True))[::10]:
    print(f"{rate:8.5f} {loss:7.3f} {'*' * int(10 * min(loss, 6))}")
print(f"the loss falls fastest at {finder.find_steepest_rate():.4f} and explodes at {finder.rates[-1]:.4f}")
