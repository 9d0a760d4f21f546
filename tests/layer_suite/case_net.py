"""A test case as pure functions of params and inputs, which tests transform."""

import functools
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax import PaddedRows
from caffejax.base.errors import CaffejaxError
from caffejax.core.program.net import Net

from .case import Case

SEED = 5  # of every pass
Arrays = Any  # a pytree of arrays


class CaseNet:
    """The net of a case, with random parameters, state and inputs.

    Args:
        case: the case.
        kernels, backward: the arguments of `Net` with these names.
        rows: the number of items in the net's batch.

    Attributes:
        net: the net.
        params, state, inputs: float32 NumPy arrays, as `Net.apply` takes them.
    """

    def __init__(self, case: Case, kernels: Any = "fast", backward: Any = "autodiff", rows: int = 3) -> None:
        self.case = case
        self.net = Net(case.prototxt(rows), case.phase, kernels=kernels, backward=backward)
        rng = np.random.default_rng(zlib.crc32(case.name.encode()))
        params, state = self.net.init(jax.random.key(0))
        noise_scale = 0.1 if case.is_net else 1.0  # a net's own weights keep its numbers in bounds
        params = jax.tree.map(lambda p: p * case.is_net + noise_scale * rng.normal(size=p.shape), params)
        self.params, self.state = (
            to_numpy(params),
            to_numpy(jax.tree.map(lambda s: rng.uniform(0.5, 1.5, s.shape), state)),
        )
        self.inputs = {name: self._draw_input(name, rng) for name in self.net.input_names}

    def _draw_input(self, name: str, rng: np.random.Generator) -> np.ndarray:
        shape = self.net.graph.blobs[name].shape
        if name in self.case.samplers:
            return np.asarray(self.case.samplers[name](rng, shape), np.float32)
        if name in self.index_inputs:
            return rng.integers(0, self.case.classes, shape).astype(np.float32)
        if self.case.distribution == "probabilities":
            return rng.dirichlet(np.ones(shape[1]), shape[0]).astype(np.float32)
        values = rng.uniform(0.2, 2, shape) if self.case.distribution == "positive" else rng.normal(size=shape)
        return values.astype(np.float32)

    @functools.cached_property
    def index_inputs(self) -> set[str]:
        """The inputs that hold whole numbers, which are not differentiable."""
        layers = self.net.graph.layers
        copied = {top: layer.bottoms[0] for layer in layers if layer.type.name == "Split" for top in layer.tops}
        names = (layer.bottoms[i] for layer in layers for i in layer.index_bottoms)
        return {copied.get(name, name) for name in names}

    def unsupported_reason(self, transform: str) -> str | None:
        """Return why the layer types do not support a transform, as registered, or None if they do."""
        types = [layer.type for layer in self.net.graph.layers]
        return next((t.unsupported[transform] for t in types if transform in t.unsupported), None)

    @property
    def is_on_host(self) -> bool:
        """Whether some layer of the net runs on the host."""
        return self.net.has_host_layers

    @property
    def has_caffe_gradient(self) -> bool:
        """Whether a gradient is Caffe's formula, not the derivative, such as the zero gradient of padded tops."""
        layer_types = [layer.type for layer in self.net.graph.layers]
        return any(layer_type.gradient.overrides_autodiff or layer_type.traits.pads_rows for layer_type in layer_types)

    def loss(self, params: Arrays, inputs: Arrays, state: Arrays = None) -> tuple[jax.Array, Arrays]:
        """Return the sum of the sines of all tops, and (tops, new state)."""
        tops = self.net.outputs if self.case.is_net else self.net.graph.layer(self.net.graph.layers[-1].key).tops
        state_used = self.state if state is None else state
        blobs, new_state = self.net.apply(params, state_used, inputs, key=jax.random.key(SEED), blobs=tops)
        blobs = {name: self._pad_rows(name, blob) for name, blob in blobs.items()}
        loss = sum((jnp.sin(top).sum() for top in blobs.values()), start=jnp.zeros(()))
        return loss, (blobs, new_state)

    def _pad_rows(self, name: str, blob: Any) -> jax.Array:
        """Return a blob with zeros in rows of padding, which only traced code has, where their number may vary."""
        if isinstance(blob, PaddedRows):
            return blob.zero_padding()
        shape = self.net.graph.blobs[name].shape
        axes = [getattr(layer.type.implementation, "ragged_axis", None) for layer in self.net.graph.layers]
        if blob.ndim != len(shape) or all(axis is None for axis in axes):
            return blob
        return jnp.pad(blob, [(0, max(n - m, 0)) for n, m in zip(shape, blob.shape, strict=True)])

    @property
    def value_and_grad(self) -> Any:
        """The function of (params, inputs) that returns ((loss, (tops, state)), (param gradients, input gradients))."""
        return jax.value_and_grad(self.loss, (0, 1), has_aux=True)

    def value_and_grad_with_state(self, point: tuple[Arrays, Arrays], state: Arrays) -> Any:
        """Return the results of `value_and_grad` for a given state."""
        return jax.value_and_grad(self.loss, (0, 1), has_aux=True)(*point, state)

    def compute_gradient(self, params: Arrays, inputs: Arrays) -> Arrays:
        """Return the gradients with respect to params and inputs."""
        return self.value_and_grad(params, inputs)[1]

    @functools.cached_property
    def compiled_value_and_grad(self) -> Any:
        """`value_and_grad`, compiled unless it runs on the host."""
        return self.value_and_grad if self.is_on_host else compile_for(self.value_and_grad, *self.point)

    @functools.cached_property
    def float64_copy(self) -> "CaseNet":
        """A copy with float64 arrays, to be used with x64 enabled."""
        float64_net = CaseNet(self.case, self.net.config.kernels)
        float64_net.params, float64_net.state, float64_net.inputs = to_numpy(
            (self.params, self.state, self.inputs), np.float64
        )
        return float64_net

    @property
    def point(self) -> tuple[Arrays, Arrays]:
        """Params and inputs."""
        return self.params, self.inputs

    def draw_direction(self, seed: int = 0) -> tuple[Arrays, Arrays]:
        """Draw random numbers with the structure of `point`; directions of labels and constants are 0."""
        rng = np.random.default_rng(seed)
        params, inputs = jax.tree.map(lambda a: rng.normal(size=a.shape).astype(a.dtype), self.point)
        fixed = self.index_inputs | self.case.constants
        return params, {name: a * (name not in fixed) for name, a in inputs.items()}


def compile_for(function: Callable[..., Any], *arrays: Any, **options: Any) -> Any:
    """Compile a function with `jax.jit` for such arrays; the result has the text of the program, too."""
    return jax.jit(function, **options).lower(*arrays).compile()


@functools.lru_cache(maxsize=4)
def cached_case_net(case: Case, kernels: str) -> CaseNet:
    """Return the net of a case, with default arguments."""
    return CaseNet(case, kernels)


@functools.cache
def is_kernel_independent(case: Case) -> bool:
    """Return whether fast and reference kernels give the same program, including all derivatives."""
    jaxpr_texts = []
    for kernels in ("fast", "reference"):
        case_net = cached_case_net(case, kernels)
        if case_net.is_on_host:
            return False
        jaxpr_texts.append(re.sub("0x[0-9a-f]+", "", str(jax.make_jaxpr(case_net.value_and_grad)(*case_net.point))))
    return jaxpr_texts[0] == jaxpr_texts[1]


@contextmanager
def expect_support(transform: str, case_net: CaseNet) -> Iterator[None]:
    """Require that the block succeeds, or that it raises if the type is registered as not supporting `transform`."""
    has_no_rows = transform == "shard" and all(len(x) == 1 for x in case_net.inputs.values())
    if case_net.unsupported_reason(transform) is None or has_no_rows:
        yield
        return
    names_layer = case_net.is_on_host and transform != "shard"  # its rows are gathered, which is no error
    with pytest.raises(
        CaffejaxError if names_layer else (CaffejaxError, TypeError, ValueError, AssertionError)
    ) as error:
        yield
    if names_layer:
        assert "layer 'layer'" in str(error.value)


def to_numpy(tree: Arrays, dtype: Any = np.float32) -> Arrays:
    """Convert a pytree to NumPy arrays of a dtype."""
    return jax.tree.map(lambda a: np.asarray(a, dtype), tree)


def assert_close(actual: Arrays, expected: Arrays, tolerance: float) -> None:
    """Compare pytrees, with `tolerance` relative to the largest value of each array."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for (path, a), b in zip(jax.tree.leaves_with_path(actual), jax.tree.leaves(expected), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.shape == b.shape, jax.tree_util.keystr(path)
        atol = tolerance * max(np.abs(b).max(initial=0.0), 1e-2)
        np.testing.assert_allclose(a, b, rtol=0, atol=atol, err_msg=jax.tree_util.keystr(path))


def inner_product(a: Arrays, b: Arrays) -> Any:
    """Return the inner product of two pytrees."""
    return sum(((x * y).sum() for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)), start=0.0)


def move(point: Arrays, direction: Arrays, step: float) -> Arrays:
    """Return the point plus `step` times the direction."""
    return jax.tree.map(lambda a, d: a + step * d, point, direction)
