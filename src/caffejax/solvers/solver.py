"""The solver: trains a net as its SolverParameter says."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from ..checkpoints.loading import load_weights
from ..data.loader import Loader
from ..errors import SolverError
from ..inspect.debug_info import DebugInfo
from ..inspect.index_check import IndexCheck
from ..kernels import Kernels
from ..layers.calling import Backward
from ..layers.context import name_key
from ..net import Net, Params, Variables
from ..net.given import check_solver_options
from ..paths import find
from ..precision import Precision
from ..process import tune_process
from ..schedule.remat import Remat
from ..schedule.remat.limit import available_memory
from ..schema import read_solver, source_file
from ..schema.caffe_pb2 import SolverParameter
from . import policies, settings
from .evaluate import Scores
from .finite_check import FiniteCheck
from .report import SmoothedLoss, Stopwatch, log, output_lines
from .snapshots import Snapshots
from .state import Report, TrainState, make_step, make_steps, pass_key, ragged, stack
from .testing import Tests
from .transforms import caffe_optimizer

_READ_BEHIND = 200  # iterations

Callback = Callable[["Solver"], object]
Request = Literal["snapshot", "stop"]


class Solver:
    """Trains a net, tests it, and keeps snapshots.

    Args:
        solver: path of a solver prototxt, its text, or a SolverParameter.
        file: where a SolverParameter came from: for messages, and for paths relative to it.
        weights: .caffemodel[.h5] files to start from; the solver's own `weights` come first.
        device: where to run; JAX's default device unless given.
        backward: gradients by "autodiff", or by the layers' hand-written "rules".
        keep_last: how many of the newest checkpoints to keep; all unless given.
        keep_best: a test output; the checkpoint with its best value is kept as well. A loss is best when lowest.
        workers: how many processes read each data layer's data; 0 for threads.
        kernels: "fast" formulations of the operations, or the plain "reference".
        precision: the floats that the nets compute in, see `Net`; what is trained and saved is always float32.
        remat: "auto" to run layers again in the backward pass where what it reads would not fit into memory.
        memory_limit: for "auto", bytes that training may take; what the device has free unless given.
        skip_bad: take the next image for one that cannot be decoded, with a warning; else that is an error.
        seed: what all randomness comes from where the settings have no `random_seed`; another each time unless given.
        steps_per_dispatch: how many iterations to start at once, where nothing else is due between them; for small nets
            on fast devices. As many batches are then in memory together.
        debug_nans: look at every step's numbers, and name the layer where they cease to be finite; slower.
        tune: call `tune_process`, which makes nets faster and concerns the whole process; False leaves that as it is.

    Attributes:
        param: the settings.
        net: the train net.
        tests: the test nets, with their places in the data.
        train_state: params, running statistics, optimizer state, iteration and key.
        callbacks: called with the solver after every iteration, or after those that were started at once.

    Raises:
        SolverError, SchemaError, GraphError, DataError: for settings or nets that cannot work, before
            anything runs.
    """

    def __init__(
        self,
        solver: str | os.PathLike[str] | SolverParameter,
        *,
        file: str | os.PathLike[str] | None = None,
        weights: Sequence[str | os.PathLike[str]] = (),
        device: jax.Device | None = None,
        backward: Backward = "autodiff",
        keep_last: int | None = None,
        keep_best: str | None = None,
        workers: int = 0,
        kernels: Kernels = "fast",
        precision: Precision = "float32",
        remat: Remat = "none",
        memory_limit: int | None = None,
        skip_bad: bool = False,
        steps_per_dispatch: int = 1,
        debug_nans: bool = False,
        seed: int | None = None,
        tune: bool = True,
    ) -> None:
        check_solver_options(
            weights=weights, device=device, keep_last=keep_last, steps_per_dispatch=steps_per_dispatch, seed=seed
        )
        if tune:
            tune_process()
        self.param = read_solver(solver)
        self.file = Path(file) if file is not None else source_file(solver)
        folder = self.file.parent if self.file else None
        settings.check(self.param, os.fspath(self.file) if self.file else None)
        self.device = device or jax.devices()[0]
        self.seed = self.param.random_seed
        if self.seed < 0:
            self.seed = secrets.randbits(31) if seed is None else seed
        self.schedule = policies.schedule(self.param)
        self.callbacks: list[Callback] = []

        log.info("Creating training net%s.", _from(settings.train_net(self.param, folder)))
        self._net_options: Any = {
            "backward": backward,
            "seed": self.seed,
            "workers": workers,
            "kernels": kernels,
            "precision": precision,
            "skip_bad": skip_bad,
        }
        if remat == "auto" and memory_limit is None:
            memory_limit = available_memory(self.device)
        self.net = self._net(settings.train_net(self.param, folder), remat=remat, memory_limit=memory_limit)
        self.loader = self._open_loader(self.net)
        nets = [self._net(s) for s in settings.test_nets(self.param, folder)]
        self.tests = Tests(self.param, nets, self.net, self._key, self.device, self._open_loader)

        given = [find(w, folder) for entry in self.param.weights for w in entry.split(",")]
        variables = self.net.init(name_key(self._key, "init"))
        for path in [*given, *weights]:
            log.info("Finetuning from %s", path)
            variables = load_weights(self.net.graph, variables, path)
        self._optimizer = caffe_optimizer(self.param, self._multipliers("lr_mult"), self._multipliers("decay_mult"))
        self.train_state = self._placed(variables, self._optimizer.init(variables.params))
        self._keep_best = keep_best
        self.snapshots = Snapshots(self.param, self.file, self.tests.keep(keep_last, keep_best))
        self._request: Request | None = None
        step = make_step(self.net, self._optimizer, self.param.iter_size, keep_update=self.param.snapshot_diff)
        self._step = self.net.jit(step, donate_argnums=() if debug_nans else 0)
        self._steps = self.net.jit(make_steps(step), donate_argnums=0)
        self._check_indices = IndexCheck(self.net)
        one_by_one = debug_nans or self.param.debug_info or self.net.has_host_layers or self._check_indices.needed
        self._at_once = 1 if one_by_one else steps_per_dispatch
        self._last_update: Params | None = None
        self._debug_info = DebugInfo(self.net) if self.param.debug_info else None
        self._start = self._record()["data"]
        self._smoothed = SmoothedLoss(self.param.average_loss)
        self._unread: list[jax.Array] = []
        self._finite_check = FiniteCheck(self.net, self.param.iter_size, every_step=debug_nans)
        self.iteration = 0

    def __reduce__(self) -> Any:
        raise SolverError(
            "a solver cannot be copied or pickled, as it reads data and writes files: copy its net and variables, or "
            "make another and restore a snapshot"
        )

    @property
    def _key(self) -> jax.Array:
        return jax.random.key(self.seed)

    def _net(self, s: settings.NetSettings, **more: Any) -> Net:
        return Net(s.message, state=s.state, file=s.file, **self._net_options, **more)

    def _open_loader(self, net: Net) -> Loader:
        return Loader(net)

    def _multipliers(self, name: str) -> Any:
        """A tree like the params, with each blob's lr_mult or decay_mult."""
        return self.net.tree(lambda p: getattr(p, name) if p.blob.learnable else None)

    def _placed(self, variables: Variables, opt_state: Any) -> TrainState:
        return jax.device_put(
            TrainState(
                params=variables.params,
                state=variables.state,
                opt_state=opt_state,
                iteration=jnp.int32(0),
                key=name_key(self._key, "train"),
            ),
            self.device,
        )

    @property
    def variables(self) -> Variables:
        """The train net's params and running statistics."""
        return Variables(self.train_state.params, self.train_state.state)

    @property
    def batch_size(self) -> int:
        """Examples per iteration: the first fed blob's first axis, times `iter_size`."""
        shapes = [self.net.graph.blobs[name].shape for name in self.net.fed]
        return self.param.iter_size * (shapes[0][0] if shapes and shapes[0] else 1)

    @property
    def rate(self) -> float:
        """The learning rate of the next update."""
        return float(self.schedule(self.iteration))

    @property
    def smoothed_loss(self) -> float:
        """The displayed loss: the mean over `average_loss` iterations.

        Raises:
            SolverError: if a loss was not finite.
        """
        self._finite_check.check()
        self._read(len(self._unread))
        return self._smoothed.value

    def step(self, iterations: int) -> None:
        """Trains for some iterations, testing, displaying and snapshotting when due.

        Raises:
            SolverError: if a loss or a parameter is found not to be finite, at the latest before a snapshot.
        """
        p = self.param
        self._smoothed, self._unread = SmoothedLoss(p.average_loss), []
        watch = Stopwatch(self.iteration)
        end = self.iteration + iterations
        while self.iteration < end:
            if self.tests.due(self.iteration) and (self.iteration or p.test_initialization):
                self.test()
            n = self._at_once if self._nothing_due_within(min(self._at_once, end - self.iteration)) else 1
            report = self._update() if n == 1 else self._update_several()
            self.iteration += n - 1
            if self._due(p.display):
                self._display(report, watch)
            self.iteration += 1
            self.snapshots.check()
            for callback in self.callbacks:
                callback(self)
            if self._due(p.snapshot) or self._request is not None:
                self.snapshot(wait=False)
                if self._request == "stop":
                    return
                self._request = None

    def request(self, what: Request) -> None:
        """Asks for a snapshot after the iteration under way, and to "stop" then; safe in a signal handler."""
        if self._request != "stop":  # what was asked for first and weighs more
            self._request = what

    def solve(self, resume: str | os.PathLike[str] | None = None) -> None:
        """Trains to `max_iter`, from the start or from a snapshot, and ends as Caffe does: snapshot, test."""
        p = self.param
        self._request = None
        if p.snapshot_after_train:
            self.snapshots.prepare()
        log.info("Solving %s", self.net.graph.name)
        log.info("Learning Rate Policy: %s", p.lr_policy)
        if resume is not None:
            self.restore(resume)
        self.step(max(0, p.max_iter - self.iteration))
        if self._request == "stop":
            self.snapshots.close()
            log.info("Optimization stopped early.")
            return
        self._finite_check.check(self.train_state)
        if p.snapshot_after_train and not self._due(p.snapshot):
            self.snapshot()
        if self._due(p.display):
            self._final_display()
        if self.tests.due(self.iteration):
            self.test()
        self.snapshots.close()
        log.info("Optimization Done.")

    def test(self) -> list[Scores]:
        """Tests every test net with the current params; logs and returns the scores."""
        return self.tests.run(self.iteration, self.variables)

    def snapshot(self, wait: bool = True) -> None:
        """Saves Caffe's two files, in `snapshot_format`, and everything as a checkpoint.

        Args:
            wait: return when all is written; else training may go on meanwhile.

        Raises:
            WeightsError: if it, or the one before, could not be written.
            SolverError: if the parameters are not finite.
        """
        self._finite_check.check(self.train_state)
        if self._keep_best and self.tests.due(self.iteration):
            self.test()  # now, not with the next iteration: the checkpoint is ranked by it
        self.snapshots.save(
            self.train_state, self.net.graph, self.iteration, self._record(), last_update=self._last_update
        )
        self._finite_check.good = f"{self.snapshots.prefix}.orbax{os.sep}{self.iteration}"
        if wait:
            self.snapshots.wait()

    def restore(self, snapshot: str | os.PathLike[str]) -> None:
        """Goes back to a snapshot: a checkpoint folder (its newest step), one step of it, or a .solverstate[.h5].

        Caffe's own .solverstate does not say how far the data had been read: it restarts at the first row.

        Raises:
            WeightsError: if it cannot be read or is of another net.
        """
        self.train_state, record = self.snapshots.restore(snapshot, self.train_state, self.net.graph)
        self.iteration = int(self.train_state.iteration)
        self._last_update = None
        positions = record.get("data", self._start)
        self.loader.set_state(positions["train"])
        self.tests.set_state(positions["test"])
        self._finite_check.restart(os.fspath(snapshot))
        log.info("Restored iteration %d from %s", self.iteration, snapshot)

    def close(self) -> None:
        """Ends background work: data readers and savers."""
        self.snapshots.close()
        self.loader.close()
        self.tests.close()

    def _due(self, interval: int) -> bool:
        return bool(interval) and self.iteration % interval == 0

    def _nothing_due_within(self, n: int) -> bool:
        """Whether as many updates as are started at once can be: no test, snapshot or display falls between them."""
        between = range(self.iteration, self.iteration + n - 1)
        tests, p = self.tests, self.param
        return n == self._at_once and not any(
            tests.due(i + 1) or (p.snapshot and (i + 1) % p.snapshot == 0) or (p.display and i % p.display == 0)
            for i in between
        )

    def _read_batches(self) -> dict[str, Any]:
        return stack([next(self.loader) for _ in range(self.param.iter_size)])

    def _update_several(self) -> Report:
        read = [self._read_batches() for _ in range(self._at_once)]
        together = stack(read)
        if ragged(together) or any(map(ragged, read)):
            reports = [self._update_with(batches, self.iteration + i) for i, batches in enumerate(read)]
            return reports[-1]
        rates = np.array([self.schedule(self.iteration + i) for i in range(self._at_once)], np.float32)
        self.train_state, report = self._steps(self.train_state, jax.device_put(together, self.device), rates)
        self._last_update = report.update
        self._note(report.loss)
        self._finite_check.step(self.iteration, self.train_state, {}, self.train_state, report.loss)
        return report

    def _update(self) -> Report:
        return self._update_with(self._read_batches(), self.iteration)

    def _update_with(self, batches: Mapping[str, Any], iteration: int) -> Report:
        placed = jax.device_put(batches, self.device)
        before = self.train_state
        for i in range(self.param.iter_size if self._check_indices.needed else 0):
            batch = {name: array[i] for name, array in placed.items()}
            self._check_indices(*self.variables, batch, pass_key(before, i))
        if self._debug_info is not None and self._due(self.param.display):
            self._log_debug_info(placed)
        self.train_state, report = self._step(before, placed, self.schedule(iteration))
        self._last_update = report.update
        self._note(report.loss)
        self._finite_check.step(iteration, before, placed, self.train_state, report.loss)
        return report

    def _note(self, loss: jax.Array) -> None:
        self._unread.append(loss)
        if len(self._unread) > _READ_BEHIND:  # long done: reading it does not wait
            self._read(1)

    def _read(self, n: int) -> None:
        for _ in range(n):
            for loss in np.ravel(self._unread.pop(0)).tolist():
                self._smoothed.add(loss)

    def _log_debug_info(self, placed: Mapping[str, jax.Array]) -> None:
        assert self._debug_info is not None
        for i in range(self.param.iter_size):
            batch = {name: array[i] for name, array in placed.items()}
            for line in self._debug_info.lines(*self.variables, batch, pass_key(self.train_state, i)):
                log.info(line)

    def _display(self, report: Report, watch: Stopwatch) -> None:
        loss = self.smoothed_loss
        speed, seconds = watch.lap(self.iteration)
        log.info(
            f"Iteration {self.iteration} ({speed:g} iter/s, {seconds:g}s/{self.param.display} iters), loss = {loss:g}"
        )
        for line in output_lines("Train", jax.tree.map(np.asarray, report.outputs), self.net.graph.losses):
            log.info(line)
        log.info(f"Iteration {self.iteration}, lr = {self.rate:g}")

    def _final_display(self) -> None:
        """One more forward pass, for the loss after the last update."""
        batch = jax.device_put(next(self.loader), self.device)
        loss, outputs = self.net.jit(self.net.loss)(*self.variables, batch, self.train_state.key)
        self.train_state = self.train_state.replace(state=outputs.state)  # type: ignore[attr-defined]
        self._note(loss)
        self._log_loss()

    def _log_loss(self) -> None:
        log.info(f"Iteration {self.iteration}, loss = {self.smoothed_loss:g}")

    def _record(self) -> dict[str, Any]:
        data = {"train": self.loader.get_state(), "test": self.tests.get_state()}
        return {"data": data, "seed": self.seed, "scores": self.tests.scores}


def _from(s: settings.NetSettings) -> str:
    return f" from net file: {s.file}" if s.file else " specified in the solver"
