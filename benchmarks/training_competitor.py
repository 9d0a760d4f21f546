"""One competitor of against_torch.py, in a separate process with its own threads and memory.

    python benchmarks/training_competitor.py NET TASK FORM THREADS

It answers as `competitor_server.serve` does.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from competitor_server import Run, serve

from caffejax import Net, Variables, tune_process

if TYPE_CHECKING:
    from caffejax.core.solver.train_step import Step, TrainState

CONFIGS = Path(__file__).parents[1] / "configs"
BATCHES = {
    "lenet": 64,
    "cifar10_full": 100,
    "caffenet": 32,
    "googlenet": 16,
    "squeezenet": 16,
    "resnet50": 8,
    "mobilenet": 8,
    "resnet152": 2,
    "ssd300": 4,
    "mobilenet_ssd": 8,
}
TORCH_MODES = ("eager", "channels_last", "compiled")
SETTINGS = {"lr": 0.001, "momentum": 0.9, "weight_decay": 0.0005}  # of SGD


def choose_batch(name: str, task: str) -> int:
    return 1 if task == "forward 1" else BATCHES[name]


def draw_variables(net: Net) -> Variables:
    """Draw blobs like the fillers, but faster, with running statistics of standard normal data."""
    import jax.numpy as jnp

    from caffejax.core.layers.fillers import fill, is_random

    rng = np.random.default_rng(1)

    def draw_blob(param: Any) -> Any:
        if not is_random(param.spec.filler):
            return fill(param.spec.filler, None, param.spec.shape)
        scale = np.sqrt(2 / np.prod(param.spec.shape[1:]))
        return jnp.asarray(scale * rng.standard_normal(param.spec.shape, np.float32))

    params = net.map_params(lambda p: draw_blob(p) if p.spec.learnable else None)

    def make_statistic(param: Any) -> Any:
        mean = param.index == 0
        return jnp.zeros(param.spec.shape) if mean else jnp.ones(param.spec.shape)  # variance, and the count

    return Variables(params, net.map_params(lambda p: None if p.spec.learnable else make_statistic(p)))


def draw_inputs(net: Net, batch: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shape = net.graph.blobs["data"].shape
    data = rng.normal(size=(batch, *shape[1:])).astype(np.float32)
    if any(layer.type.name == "PriorBox" for layer in net.graph.layers):
        return {"data": data, "label": draw_boxes(rng, batch)}
    return {"data": data, "label": np.arange(batch, dtype=np.float32) % 10}


def draw_boxes(rng: np.random.Generator, batch: int, per_image: int = 3) -> np.ndarray:
    """Draw SSD's ground truth: (1, 1, boxes, 8), rows of [image, label, instance, box, difficult]."""
    min_corner = rng.uniform(0, 0.5, (batch, per_image, 2))
    max_corner = min_corner + rng.uniform(0.1, 0.5, min_corner.shape)
    image, box_index = np.meshgrid(np.arange(batch), np.arange(per_image), indexing="ij")
    label = rng.integers(1, 21, image.shape)
    rows = np.stack(
        [image, label, box_index, *min_corner.T.swapaxes(1, 2), *max_corner.T.swapaxes(1, 2), 0 * image], axis=-1
    )
    return rows.reshape(1, 1, -1, 8).astype(np.float32)


def select_comparable(net: Net, result: np.ndarray) -> np.ndarray:
    """Return the values to compare: of detections the best scores, as their order may differ; otherwise the result."""
    if net.graph.phase == "TEST" and result.shape[-1] == 7:
        rows = result.reshape(-1, 7)
        return -np.sort(-rows[rows[:, 0] >= 0, 2])[:100]
    return result.ravel()[:100]


def make_training_step(net: Net, variables: Variables) -> tuple[TrainState, Step]:
    """Return the initial train state, and the function of an SGD step, which is not yet compiled."""
    import jax

    from caffejax.core.schema.caffe_pb2 import SolverParameter
    from caffejax.core.solver.caffe_optimizer import make_optimizer
    from caffejax.core.solver.train_step import init_train_state, make_step

    solver = SolverParameter(type="SGD", lr_policy="fixed", momentum=SETTINGS["momentum"])
    solver.weight_decay = SETTINGS["weight_decay"]
    optimizer = make_optimizer(solver, net)
    return init_train_state(variables, optimizer, jax.random.key(1)), make_step(net, optimizer, 1)


def build_caffejax_run(net: Net, task: str, batch: int) -> tuple[Run, Run]:
    """Return the function to time, and one that starts the same run without waiting for its end."""
    import jax
    import jax.numpy as jnp

    variables, arrays = draw_variables(net), draw_inputs(net, batch)
    inputs = {name: jnp.asarray(arrays[name]) for name in net.input_names}
    if task != "step":
        start = lambda: net.forward(variables.params, variables.state, inputs)[0]  # noqa: E731
        return lambda: next(iter(jax.block_until_ready(start()).values())), start
    state, step = make_training_step(net, variables)
    step = net.jit(step, donate_argnums=0)
    batches = {name: array[None] for name, array in inputs.items()}

    def start() -> Any:
        nonlocal state
        state, step_result = step(state, batches, SETTINGS["lr"])
        return step_result.loss

    return lambda: jax.block_until_ready((start(), state))[0], start


def build_torch_run(net: Net, task: str, batch: int, mode: str, threads: int) -> Run:
    import torch
    from torch_net import TorchNet, trace_net

    torch.set_num_threads(threads)
    module: Any = trace_net(TorchNet(net.graph, draw_variables(net)))
    arrays = draw_inputs(net, batch)
    label = torch.from_numpy(arrays["label"])
    inputs = {"data": torch.from_numpy(arrays["data"]), "label": label.long() if label.ndim == 1 else label}
    if mode != "eager":
        module = module.to(memory_format=torch.channels_last)
        inputs["data"] = inputs["data"].to(memory_format=torch.channels_last)
    run_module = torch.compile(module, fullgraph=True) if mode == "compiled" else module
    if task != "step":

        def forward() -> Any:
            with torch.inference_mode():
                return run_module(**inputs)

        return forward
    sgd = torch.optim.SGD(module.parameters(), fused=True, **SETTINGS)

    def step() -> Any:
        sgd.zero_grad()
        loss = run_module(**inputs)
        loss.backward()
        sgd.step()
        return loss.detach()

    return step


def main() -> None:
    name, task, mode, threads = sys.argv[1:]
    if mode not in TORCH_MODES:
        tune_process()
    net = Net(
        CONFIGS / name / "train_val.prototxt",
        "TRAIN" if task == "step" else "TEST",
        kernels="fast" if mode in TORCH_MODES else mode,  # type: ignore[arg-type]
    )
    batch = choose_batch(name, task)
    if mode in TORCH_MODES:
        run, start = build_torch_run(net, task, batch, mode, int(threads)), None
    else:
        run, start = build_caffejax_run(net, task, batch)
    serve(lambda: run, select_output=lambda result: select_comparable(net, result), start=start)


if __name__ == "__main__":
    main()
