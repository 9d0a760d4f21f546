"""Features: what some blobs of a net hold, batch after batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax

from ..execution.validation import known_names
from ..inference.policy import freeze_passes
from ..net import Blobs, Net, Params, Variables
from .index_check import IndexCheck


def features(
    net: Net,
    variables: Variables,
    blobs: Iterable[str],
    batches: Iterable[Mapping[str, Any]],
    key: jax.Array | None = None,
    *,
    freeze: bool = True,
) -> Iterator[Blobs]:
    """Compute blobs of a net, batch after batch.

    What a layer carries from one forward pass to the next, it carries from batch to batch.

    Args:
        net: the net.
        variables: its params, and the state to begin with.
        blobs: names of the blobs.
        batches: what the net is fed, such as a `data.loader.Loader`; taken one at a time, when the next is asked for.
        key: for layers that are random; each batch has its own made of it.
        freeze: freeze the net, where it can be. That takes as long as some batches.

    Returns:
        For each batch the blobs by name.

    Raises:
        GraphError: at once, for blobs that the net does not have.
        LayerError: on the way, for an index out of range.
    """
    names = known_names(net.graph, "blobs", blobs)
    key = jax.random.key(0) if key is None else key

    def blobs_of(params: Params, state: Params, batch: Mapping[str, Any], key: jax.Array) -> tuple[Blobs, Params]:
        return net.apply(params, state, batch, key=key, blobs=names)

    frozen, check_indices = freeze_passes(net.graph, net.run, variables, names) if freeze else None, IndexCheck(net)
    forward = net.jit(blobs_of)

    def computed() -> Iterator[Blobs]:
        params, state = variables
        for number, batch in enumerate(batches):
            given = params, state, batch, jax.random.fold_in(key, number)
            check_indices(*given)
            if frozen is not None:
                yield frozen(*given[2:])
                continue
            values, state = forward(*given)
            yield values

    return computed()
