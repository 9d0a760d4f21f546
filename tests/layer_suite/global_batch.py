"""With `axis_name`, devices that share a global batch compute the results of one device for the joined batch."""

import functools
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from caffejax.core.layers.context import Context
from caffejax.core.program.net import Net

from .case import Case
from .case_net import SEED, CaseNet, assert_close, cached_case_net, compile_for, expect_support

AXIS_NAME = "data"
SHARD_SIZE = 3  # rows of each device

# bottoms whose rows begin with the number of an image, which each device counts from 0
IMAGE_INDEX_BLOBS = {"MultiBoxLoss": "b3", "BoxAnnotatorOHEM": "b0"}


class JointCase:
    """A case for one device, and for several devices that each have a shard of the rows.

    Args:
        case: the case.
        devices: the number of devices.
        backward_modes: values of `backward` of `Net`; all share the passes of one program.

    Attributes:
        joint: the case with all rows.
        joint_nets: for each backward mode the net with all rows.
        shard_nets: for each backward mode the net with a shard of the rows, as each device runs it.
        inputs: the inputs of the devices, each with a shard of each array.
    """

    def __init__(self, case: Case, devices: int, backward_modes: Sequence[Any]) -> None:
        self.case, self.devices = case, devices
        self.joint = CaseNet(case, rows=devices * SHARD_SIZE)
        joint_text, shard_text = case.prototxt(devices * SHARD_SIZE), case.prototxt(SHARD_SIZE)
        self.joint_nets = [Net(joint_text, case.phase, backward=backward) for backward in backward_modes]
        self.shard_nets = [
            Net(shard_text, case.phase, axis_name=AXIS_NAME, sync_bn=True, backward=backward)
            for backward in backward_modes
        ]
        self._ignore_first_labels()
        self.inputs = {name: np.array(a) for name, a in self.joint.inputs.items()}
        self._offset_image_indices()

    def _ignore_first_labels(self) -> None:
        """Set all labels of the first device, and the first label of the second, to the ignored label."""
        for layer in self.joint.net.graph.layers:
            label = read_ignored_label(layer.context)
            for name in self.joint.index_inputs & set(self.joint.inputs):
                if label is not None and self.case.row_axis(name) == 0:
                    self.joint.inputs[name][: SHARD_SIZE + 1] = label

    def _offset_image_indices(self) -> None:
        name = IMAGE_INDEX_BLOBS.get(self.case.name.split("_")[0])
        row_axis = None if name is None else self.case.row_axis(name)
        if name is not None and row_axis is not None:
            image_indices = self.inputs[name][..., 0]
            if name == "b3":
                image_indices[..., :SHARD_SIZE] = -1  # the first device has no ground truth
            global_indices = np.arange(image_indices.shape[row_axis]) // SHARD_SIZE * SHARD_SIZE + image_indices
            self.joint.inputs[name][..., 0] = np.where(image_indices < 0, image_indices, global_indices)

    def row_axis(self, name: str) -> int | None:
        """Return the batch axis of a blob, or None if it has none."""
        return find_row_axis(self.joint.net.graph.blobs[name].shape, self.shard_nets[0].graph.blobs[name].shape)

    @property
    def tops(self) -> tuple[str, ...]:
        """The tops to compare."""
        net = self.joint.net
        return tuple(net.outputs if self.case.is_net else net.graph.layer(net.graph.layers[-1].key).tops)

    def smooth_loss(self, net: Net, params: Any, inputs: Any, state: Any) -> Any:
        """Return the sum of the arctangents of all tops, over all devices, and (tops, new state)."""
        blobs, new_state = net.apply(params, state, inputs, key=jax.random.key(SEED), blobs=self.tops)
        loss = jnp.zeros(())
        for name, top in blobs.items():
            result = jnp.arctan(top).sum()
            loss += (
                jax.lax.psum(result, AXIS_NAME)
                if net in self.shard_nets and self.row_axis(name) is not None
                else result
            )
        return loss, (blobs, new_state)

    def make_results(self, nets: Sequence[Net]) -> Any:
        """Return a function of (params, inputs, state) that computes, for each net, gradients, tops and new state."""

        def run(*args: Any) -> Any:
            return [jax.grad(functools.partial(self.smooth_loss, net), (0, 1), has_aux=True)(*args) for net in nets]

        return run

    @property
    def mapped_results(self) -> Any:
        """The function of `make_results` for the shard nets, mapped over the devices."""
        input_specs = {name: make_spec(self.row_axis(name)) for name in self.inputs}
        states = (net.init(jax.random.key(0))[1] for net in (self.joint.net, self.shard_nets[0]))
        state_specs = jax.tree.map(
            lambda joint_array, shard_array: make_spec(find_row_axis(joint_array.shape, shard_array.shape)), *states
        )
        param_specs = jax.tree.map(lambda _: make_spec(None), self.joint.params)
        top_specs = {name: make_spec(self.row_axis(name)) for name in self.tops}
        return jax.shard_map(
            self.make_results(self.shard_nets),
            mesh=make_mesh(self.devices),
            in_specs=(param_specs, input_specs, state_specs),
            out_specs=[((param_specs, input_specs), (top_specs, state_specs))] * len(self.shard_nets),
        )

    def check(self) -> None:
        """Check that the devices together give the tops, state and gradients of one device."""
        joint, args = self.joint, (self.joint.params, self.inputs, self.joint.state)
        expected = compile_for(self.make_results(self.joint_nets), *args)(joint.params, joint.inputs, joint.state)
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(expected))
        assert_close(compile_for(self.mapped_results, *args)(*args), expected, 1e-5)


def make_mesh(devices: int) -> Any:
    """Return a mesh of one axis with this many devices."""
    axis_types = (jax.sharding.AxisType.Auto,)
    return jax.make_mesh((devices,), (AXIS_NAME,), axis_types=axis_types, devices=jax.devices()[:devices])


def read_ignored_label(ctx: Context) -> int | None:
    """Return the ignored label in the layer's parameters or in its LossParameter, or None."""
    set_fields = [field for message in (ctx.param, ctx.layer.loss_param) if message for field in message.ListFields()]
    labels = [value for field, value in set_fields if field.name == "ignore_label"]
    return int(np.ravel(labels[0])[0]) if labels else None


def find_row_axis(joint_shape: tuple[int, ...], shard_shape: tuple[int, ...]) -> int | None:
    """Return the axis along which the joint shape is longer, or None."""
    return next((k for k, (a, b) in enumerate(zip(joint_shape, shard_shape, strict=True)) if a != b), None)


def make_spec(axis: int | None) -> PartitionSpec:
    """Return the partition spec of an array with this batch axis."""
    return PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, AXIS_NAME)


def sums_over_rows(case: Case) -> bool:
    """Return whether a layer adds rows, as losses and statistics do."""
    return case.layer_type.signature.loss or getattr(case.layer_type.implementation, "stateful", False)


def is_asked_with_devices(case: Case, is_fork: bool) -> bool:
    """Return whether devices may share a batch: nothing is drawn, and no layer is on the host.

    Rows that know nothing of each other are asked under `jax.shard_map` as it is. The cases of MultiBoxLoss have ground
    truth that is not split; its tests ask about others.
    """
    traits = case.layer_type.traits
    is_by_rows = is_fork and (traits.elementwise or traits.row_wise)
    return not (case.random or case.layer_type.on_host or is_by_rows or case.layer_type.name == "MultiBoxLoss")


def sharded_results_equal_one_device(case: Case, eight_devices: ProcessPoolExecutor, num_devices: int = 4) -> None:
    case_net = cached_case_net(case, "fast")
    if case_net.is_on_host:
        pytest.skip("no type that selects rows on the host joins the batches of devices")
    with expect_support("joint_batch", case_net):
        eight_devices.submit(check_joint_batch, case, num_devices).result()


def check_joint_batch(case: Case, num_devices: int) -> None:
    """Check a case by autodiff, and by its type's rule if there is one."""
    gradient = case.layer_type.gradient
    has_rule = gradient.backward is not None and not gradient.overrides_autodiff
    JointCase(case, num_devices, ["autodiff", "rules"] if has_rule else ["autodiff"]).check()
