"""Finite differences, with a test of whether each can be trusted.

Every element is moved by +-h for four steps h, each a quarter of the one before. Central differences of neighbouring
steps are extrapolated to an error of order h**4; the result is the pair of extrapolations that agree best. Near a kink
they do not agree, and exactly on a kink the two one-sided slopes differ by the same amount at small and large steps.
Such elements are unresolved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..layers import OnHost
from ..layers.dispatch import Arrays
from .layer_gradients import Case, compute_tops

ONE_SIDED = 1e-3  # two slopes may differ by that, and be no kink


@dataclass(frozen=True)
class Tolerances:
    """Steps and tolerances for layers that compute in a dtype.

    Attributes:
        steps: step sizes, relative to the typical size of the element or its array.
        agreement: allowed difference of two extrapolations, relative to the larger gradients.
        tolerance: allowed error of a derivative against the differences; at least ten times a smooth function's error.
        eps: the dtype's relative spacing.
    """

    steps: np.ndarray
    agreement: float
    tolerance: float
    eps: float


FLOAT64 = Tolerances(0.01 / 4.0 ** np.arange(4), 1e-7, 1e-6, float(np.finfo(np.float64).eps))
FLOAT32 = Tolerances(0.16 / 4.0 ** np.arange(4), 1e-4, 1e-3, float(np.finfo(np.float32).eps))


def tolerances_for(case: Case) -> Tolerances:
    """Return the tolerances for the dtype that the case's layer computes in."""
    runs = case.context.type.implementation
    return FLOAT32 if isinstance(runs, OnHost) and runs.in_float32 else FLOAT64


@dataclass(frozen=True)
class Differences:
    """Central differences with respect to some elements of an argument.

    Attributes:
        at: flat indices of the elements.
        values: the differences.
        resolved: mask of the differences that are reliable.
        noise: bound of the rounding error of each.
        tolerance: allowed relative error of a derivative against them.
    """

    at: np.ndarray
    values: np.ndarray
    resolved: np.ndarray
    noise: np.ndarray
    tolerance: float


def by_differences(case: Case, samples: int | None, random: np.random.Generator) -> list[Differences]:
    """Compute the gradients by finite differences at `samples` random elements of each argument, or at all elements.

    samples: default: 64, and fewer (down to 4) if one evaluation handles more than 100,000 numbers.
    """
    values = [np.asarray(v, np.float64) for v in case.values]
    tolerances = tolerances_for(case)
    starts = np.cumsum([0, *(v.size for v in values)])
    cost = int(starts[-1]) + sum(d.size for d in case.top_diffs)
    samples = samples or int(np.clip(64 * 100_000 // max(cost, 1), 4, 64))
    chosen = [np.sort(random.permutation(v.size)[:samples]) for v in values]
    sizes = [_sizes(v.ravel(), at) for v, at in zip(values, chosen, strict=True)]
    steps = np.concatenate(sizes)[:, None] * tolerances.steps
    places = np.concatenate([start + at for start, at in zip(starts, chosen, strict=False)])
    changes, norm = _changes(case, places, np.stack([steps, -steps], -1))
    result = _extrapolate(changes[..., 0], changes[..., 1], steps, norm, tolerances)
    ends = np.cumsum([len(at) for at in chosen])[:-1]
    parts = zip(chosen, *(np.split(r, ends) for r in result), strict=True)
    return [_resolve(tolerances, *part) for part in parts]


def _sizes(flat: np.ndarray, at: np.ndarray) -> np.ndarray:
    return np.maximum(np.abs(flat[at]), max(float(np.sqrt(np.mean(flat**2))), 0.01))


def _changes(case: Case, places: np.ndarray, moves: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the change of (tops . top diffs) for each move of each element, and the magnitude of its terms.

    Args:
        case: the layer.
        places: flat indices into all arguments concatenated, shape (n,).
        moves: shape (n, steps, 2).
    """
    index = np.repeat(places, moves[0].size)

    def evaluate(key: Any, blobs: Arrays, bottoms: Arrays, top_diffs: Arrays, index: Any, delta: Any) -> Any:
        shapes = [v.shape for v in case.pick(blobs, bottoms)]
        ends = np.cumsum([int(np.prod(s)) for s in shapes])[:-1]

        def tops(flat: jax.Array) -> Arrays:
            values = [v.reshape(s) for v, s in zip(jnp.split(flat, ends), shapes, strict=True)]
            return compute_tops(case.context.with_key(key), *case.place(values, blobs, bottoms))

        def change(move: tuple[jax.Array, jax.Array]) -> jax.Array:
            moved = tops(flat.at[move[0]].add(move[1]))
            # differences first: constant elements contribute no rounding
            terms = [jnp.sum(c * (m - b)) for c, m, b in zip(top_diffs, moved, base, strict=True)]
            return sum(terms, start=jnp.zeros(()))

        flat = jnp.concatenate([v.ravel() for v in case.pick(blobs, bottoms)])
        base = tops(flat)
        squares = [jnp.sum(jnp.square(b * c)) for b, c in zip(base, top_diffs, strict=True)]
        norm = jnp.sqrt(sum(squares, start=jnp.zeros(())))
        if case.on_host:
            return [change(move) for move in zip(index, delta, strict=True)], norm
        return jax.lax.map(change, (index, delta)), norm  # one by one: convolutions run slowly under vmap

    compiled = evaluate if case.on_host else jax.jit(evaluate)
    changes, norm = compiled(case.context.base_key, case.blobs, case.bottoms, case.top_diffs, index, moves.ravel())
    return np.asarray(changes).reshape(moves.shape), float(norm)


def _extrapolate(
    up: np.ndarray, down: np.ndarray, steps: np.ndarray, norm: float, tolerances: Tolerances
) -> tuple[np.ndarray, ...]:
    """Return for each element the difference, the disagreement of two extrapolations and of two slopes, and the noise.

    Three arguments have shape (n, steps); all results (n,).
    """
    with np.errstate(invalid="ignore"):
        central = (up - down) / (2 * steps)
        better = (16 * central[:, 1:] - central[:, :-1]) / 15
        spread = np.abs(np.diff(better))
        bend = (up + down) / steps  # the slopes' difference; of a smooth function, proportional to the step
        kink = np.abs(4 * bend[:, 1:] - bend[:, :-1])[:, 1:]
    best = np.argmin(np.nan_to_num(spread, nan=np.inf), axis=1)
    rows = np.arange(len(best))
    # the tops are rounded, and so are the moved elements
    rounded = norm + (np.abs(up) + np.abs(down))[rows, best + 2] / tolerances.steps[best + 2]
    noise = 16 * tolerances.eps * rounded / steps[rows, best + 2]
    return better[rows, best + 1], spread[rows, best], kink[rows, best], noise


def _resolve(
    tolerances: Tolerances, at: np.ndarray, values: np.ndarray, spread: np.ndarray, kink: np.ndarray, noise: np.ndarray
) -> Differences:
    calm = np.isfinite(values) & (spread <= tolerances.agreement * np.abs(values) + noise)
    large = np.abs(values[calm]).max(initial=0.0)
    size = np.maximum(np.abs(values), 0.01 * large)
    believed = (spread <= np.maximum(tolerances.agreement * size, noise)) & (
        kink <= np.maximum(ONE_SIDED * size, 4 * noise)
    )
    return Differences(at, values, believed & np.isfinite(values), noise, tolerances.tolerance)
