"""Devices whose batches count as one: their results equal one device's results for the joined batch."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from case import Case
from case_net import KEY, CaseNet, assert_close, compile_call
from global_batch_cases import CASES
from jax.sharding import PartitionSpec

from caffejax.layers.context import Context
from caffejax.net import Net

AXIS = "data"
SHARE = 3  # rows of each device
CASES_BY_NAME = {case.name: case for case in CASES}

# bottoms whose rows begin with the number of an image, which each device counts from 0
IMAGE_INDEX_BLOBS = {"MultiBoxLoss": "b3", "BoxAnnotatorOHEM": "b0"}


class JointCase:
    """A case for one device, and for several devices that each have a shard of the rows.

    Args:
        case: the case.
        devices: the number of devices.
        ways: the ways to compute gradients, each as `backward` of `Net`; they share the passes of one program.

    Attributes:
        one: the subject with all rows.
        wholes: for each way the net with all rows.
        parts: for each way the net with a shard of the rows, as each device runs it.
        inputs: the inputs of the devices, each with a shard of each array.
    """

    def __init__(self, case: Case, devices: int, ways: Sequence[Any]) -> None:
        self.case, self.devices = case, devices
        self.one = CaseNet(case, rows=devices * SHARE)
        text, part = case.text(devices * SHARE), case.text(SHARE)
        self.wholes = [Net(text, case.phase, backward=way) for way in ways]
        self.parts = [Net(part, case.phase, axis_name=AXIS, sync_bn=True, backward=way) for way in ways]
        self._leave_labels_out()
        self.inputs = {name: np.array(a) for name, a in self.one.inputs.items()}
        self._number_images()

    def _leave_labels_out(self) -> None:
        """Have no label of the first device count, and of the second's the first not."""
        for layer in self.one.net.graph.layers:
            ignored = ignored_label(layer.context)
            for name in self.one.labels & set(self.one.inputs):
                if ignored is not None and self.case.axis(name) == 0:
                    self.one.inputs[name][: SHARE + 1] = ignored

    def _number_images(self) -> None:
        name = IMAGE_INDEX_BLOBS.get(self.case.name.split("_")[0])
        axis = None if name is None else self.case.axis(name)
        if name is not None and axis is not None:
            numbers = self.inputs[name][..., 0]
            if name == "b3":
                numbers[..., :SHARE] = -1  # the first device has no ground truth
            global_numbers = np.arange(numbers.shape[axis]) // SHARE * SHARE + numbers
            self.one.inputs[name][..., 0] = np.where(numbers < 0, numbers, global_numbers)

    def axis(self, name: str) -> int | None:
        """Return the axis of the rows of a blob, or None for a blob without rows of the batch."""
        return rows_axis(self.one.net.graph.blobs[name].shape, self.parts[0].graph.blobs[name].shape)

    @property
    def tops(self) -> tuple[str, ...]:
        """The tops to compare."""
        net = self.one.net
        return tuple(net.outputs if self.case.is_net else net.graph.layer(net.graph.layers[-1].key).tops)

    def smooth(self, net: Net, params: Any, inputs: Any, state: Any) -> Any:
        """A smooth function of all tops, no two numbers alike in it; and the tops and the new state."""
        blobs, new = net.apply(params, state, inputs, key=jax.random.key(KEY), blobs=self.tops)
        total = jnp.zeros(())
        for name, top in blobs.items():
            result = jnp.arctan(top).sum()
            total += jax.lax.psum(result, AXIS) if net in self.parts and self.axis(name) is not None else result
        return total, (blobs, new)

    def results(self, nets: Sequence[Net]) -> Any:
        """`f(params, inputs, state)`: of each net tops, new state, gradients by params and by inputs."""

        def run(*args: Any) -> Any:
            return [jax.grad(functools.partial(self.smooth, net), (0, 1), has_aux=True)(*args) for net in nets]

        return run

    @property
    def on_devices(self) -> Any:
        """The same of the nets with the rows spread."""
        input_specs = {name: spec(self.axis(name)) for name in self.inputs}
        states = (net.init(jax.random.key(0))[1] for net in (self.one.net, self.parts[0]))
        state_specs = jax.tree.map(lambda joint_array, part: spec(rows_axis(joint_array.shape, part.shape)), *states)
        param_specs = jax.tree.map(lambda _: spec(None), self.one.params)
        top_specs = {name: spec(self.axis(name)) for name in self.tops}
        return jax.shard_map(
            self.results(self.parts),
            mesh=mesh(self.devices),
            in_specs=(param_specs, input_specs, state_specs),
            out_specs=[((param_specs, input_specs), (top_specs, state_specs))] * len(self.parts),
        )

    def check(self) -> None:
        """Devices together give what one does: tops, state, gradients."""
        joint, args = self.one, (self.one.params, self.inputs, self.one.state)
        expected = compile_call(self.results(self.wholes), *args)(joint.params, joint.inputs, joint.state)
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(expected))
        assert_close(compile_call(self.on_devices, *args)(*args), expected, 1e-5)


def mesh(devices: int) -> Any:
    """That many devices in a row."""
    kinds = (jax.sharding.AxisType.Auto,)
    return jax.make_mesh((devices,), (AXIS,), axis_types=kinds, devices=jax.devices()[:devices])


def ignored_label(ctx: Context) -> int | None:
    """A label that does not count, by the layer's parameters or by its LossParameter."""
    set_fields = [field for m in (ctx.param, ctx.layer.loss_param) if m for field in m.ListFields()]
    result = [value for field, value in set_fields if field.name == "ignore_label"]
    return int(np.ravel(result[0])[0]) if result else None


def rows_axis(joint_shape: tuple[int, ...], shard_shape: tuple[int, ...]) -> int | None:
    """The axis along which one shape is longer."""
    return next((k for k, (a, b) in enumerate(zip(joint_shape, shard_shape, strict=True)) if a != b), None)


def spec(axis: int | None) -> PartitionSpec:
    """How an array is spread that has its rows along an axis."""
    return PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, AXIS)


def check(name: str, devices: int, ways: Sequence[str]) -> None:
    """Ask a case."""
    JointCase(CASES_BY_NAME[name], devices, ways).check()
