"""A net's params and state on disk: loaded and saved, in the format that a file's name says."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

import jax
import jax.numpy as jnp

from ..checkpoints.loading import Initializer, load_and_report, save_weights
from ..checkpoints.matching import LoadReport
from ..execution.memory_check import check_room
from ..execution.validation import check_key, check_variables
from ..graph import Graph, Slot
from ..layers.fillers import is_random
from ..variables import ParamsLike, Variables
from .initial import initial_variables


class OnDisk:
    """What a net's variables are loaded into and saved from.

    Attributes:
        graph: the net's graph.
    """

    graph: Graph

    def load(
        self,
        path: str | os.PathLike[str],
        variables: Variables | None = None,
        *,
        key: jax.Array | None = None,
        strict: bool = False,
        without: Iterable[str] = (),
    ) -> Variables:
        """Return params and state with the weights of a file, for layers of the same names; see `load_and_report`.

        Raises:
            WeightsError, CaffejaxError: as `load_and_report`.
        """
        return self.load_and_report(path, variables, key=key, strict=strict, without=without)[0]

    def load_and_report(
        self,
        path: str | os.PathLike[str],
        variables: Variables | None = None,
        *,
        key: jax.Array | None = None,
        strict: bool = False,
        without: Iterable[str] = (),
    ) -> tuple[Variables, LoadReport]:
        """Return params and state with the weights of a file, and which layers have taken, skipped or lacked theirs.

        Args:
            path: a .caffemodel, .h5, .npz or .safetensors, or a .orbax folder or one step of it.
            variables: values for what the file has no weights for; default: what `init` makes.
            key: for `init`; that of seed 0 unless given.
            strict: whether there must be weights for every layer that has some, but those of `without`.
            without: layers that keep theirs, whatever the file has.

        Raises:
            WeightsError: naming every layer whose blobs differ in number or shape, and if `strict` every layer without
                weights; if the file cannot be read, or there is no layer of `without`.
        """
        rest = self.initializer(key) if variables is None else variables
        return load_and_report(path, self.graph, rest, strict, tuple(without))

    def initializer(self, key: jax.Array | None = None) -> Initializer:
        """Return a function that adds initial values to loaded arrays; it draws none of those that are loaded.

        Args:
            key: as for `init`; default: that of seed 0.
        """
        if key is not None:
            check_key(key)
        check_room(self.graph)

        def initialize(loaded: Mapping[Slot, jax.Array]) -> Variables:
            draws = any(p.slot not in loaded and is_random(p.spec.filler) for p in self.graph.variables)
            own = jax.random.key(0) if key is None and draws else key  # to make one takes 40 MiB: it is compiled
            return initial_variables(self.graph, own, jnp.float32, {}, loaded)

        return initialize

    def save(self, params: ParamsLike, state: ParamsLike, path: str | os.PathLike[str]) -> None:
        """Write the weights to a file; the name's end says in which format: those of `load`.

        Raises:
            WeightsError: for params that are not the net's, a name of no format, and if it cannot be written; what
                was there before stays whole.
        """
        save_weights(path, self.graph, check_variables(self.graph, params, state))
