"""Nets with fixed weights: the interface, and the form that runs everywhere.

The form of the table of implementations that is registered as "freeze" replaces it where it is present.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol, get_args

import jax

from ...base.config import NetConfig, Precision, quote
from ...base.errors import CaffejaxError
from ...base.glog import log
from ...base.variables import Blobs, Variables
from ..graph import Graph
from ..ops.implementations import find_form
from .net_arguments import check_inputs, check_variables

Net = Any  # `net.Net`, whose module imports this one


class Frozen(Protocol):
    """A net in phase TEST with fixed weights, as a function from inputs to outputs; see `Net.freeze`.

    It takes inputs of any shapes that the net supports, and works inside `jax.jit`, `jax.vmap`, and `jax.grad` with
    respect to the inputs. It can be copied and pickled.
    """

    def __call__(self, inputs: Mapping[str, Any], key: jax.Array | None = None) -> Blobs:
        """Return the outputs by name.

        Args:
            inputs: an array for each name in `input_names`, of any shapes that the net supports.
            key: a random key, needed if `may_draw` returns True for the inputs.

        Raises:
            CaffejaxError: if an input is missing, unknown, or of an unsupported shape. The message names each such
                input.
        """

    @property
    def variables(self) -> Variables:
        """The parameters and state."""

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of the inputs."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs."""

    def with_batch(self, batch: int, axis: int = 0) -> Frozen:
        """Return a net with the same weights for a different batch size, the length of `axis` of each input."""

    def may_draw(self, inputs: Mapping[str, Any]) -> bool:
        """Return whether a call with inputs of these shapes may draw random numbers, so that it needs a key."""

    def strip_padding(self, blobs: Blobs) -> Blobs:
        """Return blobs without their padding rows; see `Net.strip_padding`."""


class JittedNet:
    """A `Frozen` net that is the net as a compiled program, with the weights as constants.

    Args:
        net: the net, in the form for inference.
        variables: its parameters and state.

    Attributes:
        variables, input_names, outputs: see `Frozen`.
    """

    def __init__(self, net: Net, variables: Variables) -> None:
        self._net, self.variables = net, variables
        self.input_names: tuple[str, ...] = net.input_names
        self.outputs: tuple[str, ...] = net.outputs
        self._run = net.jit(self._apply)

    def _apply(self, inputs: Mapping[str, Any], key: jax.Array | None) -> Blobs:
        return self._net.apply(*self.variables, inputs, key=key)[0]

    def __reduce__(self) -> Any:
        return type(self), (self._net, self.variables)

    def __call__(self, inputs: Mapping[str, Any], key: jax.Array | None = None) -> Blobs:
        """See `Frozen`."""
        check_inputs(self._net.graph, self.input_names, inputs)
        return self._run({name: inputs[name] for name in self.input_names}, key)

    def with_batch(self, batch: int, axis: int = 0) -> JittedNet:
        """See `Frozen`."""
        return JittedNet(self._net.with_batch(batch, axis), self.variables)

    def may_draw(self, inputs: Mapping[str, Any]) -> bool:
        """See `Frozen`."""
        try:
            jax.eval_shape(lambda inputs: self._apply(inputs, None), dict(inputs))
        except CaffejaxError:  # a layer that draws refuses to run without a key
            return True
        return False

    def strip_padding(self, blobs: Blobs) -> Blobs:
        """See `Frozen`."""
        return self._net.strip_padding(blobs)


PRECISIONS = (*get_args(Precision), "int8")


def check_precision(precision: str) -> None:
    """Check the name of a frozen net's precision.

    Raises:
        CaffejaxError: if it is unknown.
    """
    if precision not in PRECISIONS:
        names = ", ".join(f'"{p}"' for p in PRECISIONS)
        raise CaffejaxError(f"precision of a frozen net must be one of {names}, not {quote(precision)}")


def freeze_as_program(
    net: Net,
    variables: Variables,
    outputs: Iterable[str] | None,
    precision: str | None,
    calibration: Iterable[Mapping[str, Any]] | None,
) -> JittedNet:
    """Freeze a net as a `JittedNet`; for the arguments, see `Net.freeze`. "int8" becomes float32, with a warning."""
    if precision is not None:
        check_precision(precision)
        supported: Any = precision
        if precision == "int8":
            log.warning("the net is frozen in float32 instead of int8: this installation lacks the programs for CPUs")
            supported = "float32"
        net = net.with_config(replace(net.config, precision=supported))
    net = net.for_inference(outputs)
    return JittedNet(net, check_variables(net.graph, *variables))


class FrozenPasses(Protocol):
    """Forward passes of a net with fixed weights; see `freeze_passes`."""

    def __call__(self, inputs: Mapping[str, Any], key: Any) -> Blobs:
        """Return the blobs of one pass by name, from the batch of the net's inputs and the random key of the pass."""

    def loss(self, blobs: Blobs) -> Any:
        """Return the sum of the weighted losses of a pass whose blobs include `output_and_loss_names`, as float32."""


def freeze_passes(graph: Graph, config: NetConfig, variables: Variables, blobs: Iterable[str]) -> FrozenPasses | None:
    """Return passes of a net with fixed weights that are faster than `Net.apply` and equal to it, or None.

    Args:
        graph: the net's graph.
        config: the kernels, precision and other settings of the computation.
        variables: the parameters and state.
        blobs: the names of the blobs to return.
    """
    freeze = find_form("freeze_passes")
    return None if freeze is None else freeze(graph, config, variables, blobs)
