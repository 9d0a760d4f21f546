"""What is asked where devices' batches count as one: what one device computes of them joined."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from case import Case
from jax.sharding import PartitionSpec
from subject import KEY, Subject, assert_close, compiled

from caffejax.layers.context import Context
from caffejax.net import Net

AXIS = "data"
SHARE = 3  # rows of each device


class Joined:
    """A case for one device, and for several of which each has a share of the rows.

    Args:
        case: the case.
        devices: how many.
        options: as for `Net`.

    Attributes:
        one: the subject with all rows.
        part: the net with a share of them, as each device runs it.
    """

    def __init__(self, case: Case, devices: int, **options: Any) -> None:
        self.case, self.devices = case, devices
        self.one = Subject(case, rows=devices * SHARE, **options)
        self.part = Net(case.text(SHARE), case.phase, axis_name=AXIS, sync_bn=True, **options)
        self._ignore_all_of_one()

    def _ignore_all_of_one(self) -> None:
        """Have the first device's labels not count, and of the second's the first."""
        for layer in self.one.net.graph.layers:
            ignored = ignored_label(layer.context)
            for name in {layer.bottoms[i] for i in layer.index_bottoms} & set(self.one.inputs):
                if ignored is not None and self.case.axis(name) == 0:
                    self.one.inputs[name][: SHARE + 1] = ignored

    def axis(self, name: str) -> int | None:
        """The axis of a blob along which the rows lie; None for what is of the whole batch, or of no batch."""
        return rows_axis(self.one.net.graph.blobs[name].shape, self.part.graph.blobs[name].shape)

    def of_one(self, params: Any, inputs: Any, state: Any) -> Any:
        """A smooth function of all tops, no two numbers alike in it; and the tops and the new state."""
        return self._function(self.one.net, params, inputs, state)

    def _function(self, net: Net, params: Any, inputs: Any, state: Any) -> Any:
        tops = net.outputs if self.case.whole else net.graph.layers[-1].tops
        blobs, new = net.apply(params, state, inputs, key=jax.random.key(KEY), blobs=tops)
        total = jnp.zeros(())
        for name, top in blobs.items():
            found = jnp.sin(top).sum()
            total += jax.lax.psum(found, AXIS) if net is self.part and self.axis(name) is not None else found
        return total, (blobs, new)

    def of_devices(self, params: Any, inputs: Any, state: Any) -> Any:
        """The same with the rows spread, and its gradients."""
        mesh = jax.make_mesh(
            (self.devices,), (AXIS,), axis_types=(jax.sharding.AxisType.Auto,), devices=jax.devices()[: self.devices]
        )
        by_rows = {name: spec(self.axis(name)) for name in inputs}
        of_state = jax.tree.map(
            lambda a, b: spec(rows_axis(a.shape, b.shape)),
            *(n.init(jax.random.key(0))[1] for n in (self.one.net, self.part)),
        )
        tops = self.one.net.outputs if self.case.whole else self.one.net.graph.layers[-1].tops
        of_tops = {name: spec(self.axis(name)) for name in tops}
        of_params = jax.tree.map(lambda _: spec(None), params)
        run = jax.value_and_grad(functools.partial(self._function, self.part), (0, 1), has_aux=True)
        return jax.shard_map(
            run,
            mesh=mesh,
            in_specs=(of_params, by_rows, of_state),
            out_specs=((spec(None), (of_tops, of_state)), (of_params, by_rows)),
        )(params, inputs, state)

    def check(self, tolerance: float = 1e-5) -> None:
        """Devices together give what one does: value, tops, state, gradients."""
        given = self.one.params, self.one.inputs, self.one.state
        run = jax.value_and_grad(self.of_one, (0, 1), has_aux=True)
        expected = compiled(run, *given)(*given)
        assert_close(compiled(self.of_devices, *given)(*given), expected, tolerance)


def ignored_label(ctx: Context) -> int | None:
    """A label that does not count, by the layer's parameters or by its LossParameter."""
    fields = [
        value for m in (ctx.param, ctx.layer.loss_param) if m for f, value in m.ListFields() if f.name == "ignore_label"
    ]
    return int(np.ravel(fields[0])[0]) if fields else None


def rows_axis(whole: tuple[int, ...], part: tuple[int, ...]) -> int | None:
    """The axis along which one shape is longer."""
    return next((k for k, (a, b) in enumerate(zip(whole, part, strict=True)) if a != b), None)


def spec(axis: int | None) -> PartitionSpec:
    """How an array is spread that has its rows along an axis."""
    return PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, AXIS)


def ask(case: Case, devices: int, **options: Any) -> None:
    """Ask it in a process that has so many devices."""
    Joined(case, devices, **options).check()
