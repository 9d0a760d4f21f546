"""The fast kernels compared with the plain lowering: values, new state, and every gradient."""

import functools
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from caffejax.core.gradcheck import check_gradients
from caffejax.core.ops import compilation
from caffejax.core.ops.convolution_op import correlate
from caffejax.core.ops.matmul import matmul_rows
from caffejax.core.ops.window import Window
from caffejax.core.program.net import Net
from caffejax.cpu.kernels import onednn
from caffejax.cpu.kernels.convolution_cpu import choose_algorithm
from layer_nets import net_text

CONFIGS = Path(__file__).parents[3] / "configs"


def assert_close(fast: Any, plain: Any) -> None:
    """Compare arrays up to a rounding error of 1e-5 times the largest value of each."""
    assert jax.tree.structure(fast) == jax.tree.structure(plain)
    for a, b in zip(jax.tree.leaves(fast), jax.tree.leaves(plain), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * np.abs(b).max(initial=1e-6))


def assert_kernels_agree(model: Any, phase: Any = "TRAIN", rows: int | None = None) -> None:
    """Compare a net's results with fast and with reference kernels."""
    assert_close(*(compute_results(model, phase, rows, kernels) for kernels in ("fast", "reference")))


def compute_results(model: Any, phase: Any, rows: int | None, kernels: Any) -> Any:
    """Return outputs, new state, and gradients of all params and float inputs."""
    net = Net(model, phase, kernels=kernels)
    params, state = net.init(jax.random.key(0))
    random = np.random.default_rng(1)
    shapes = {name: net.graph.blobs[name].shape for name in net.input_names}
    inputs = {n: jnp.asarray(random.normal(size=(rows or s[0], *s[1:])), jnp.float32) for n, s in shapes.items()}
    if "label" in inputs:
        inputs["label"] = jnp.arange(len(inputs["label"]), dtype=jnp.float32) % 3

    def run(params: Any, inputs: Any) -> Any:
        return net.apply(params, state, inputs, key=jax.random.key(2))

    def run_with_gradients(params: Any, inputs: Any) -> Any:
        blobs, vjp, new_state = jax.vjp(run, params, inputs, has_aux=True)
        diffs = {name: jnp.cos(jnp.arange(b.size)).reshape(b.shape) for name, b in blobs.items()}
        return blobs, new_state, *vjp(diffs)

    return net.jit(run_with_gradients)(params, inputs)


@pytest.mark.parametrize(
    ("layer_type", "text", "shape"),
    [
        ("Convolution", "convolution_param { num_output: 5 kernel_size: 1 stride: 2 }", (3, 4, 7, 6)),
        ("Convolution", "convolution_param { num_output: 5 kernel_size: 1 pad: 1 }", (3, 4, 5, 6)),
        ("Convolution", "convolution_param { num_output: 4 kernel_size: 3 stride: 2 pad: 1 group: 4 }", (3, 4, 8, 7)),
        ("Convolution", "convolution_param { num_output: 4 kernel_size: 3 dilation: 2 group: 4 }", (2, 4, 9, 8)),
        ("Convolution", "convolution_param { num_output: 8 kernel_size: 3 pad: 1 group: 4 }", (2, 4, 6, 6)),
        ("Convolution", "convolution_param { num_output: 6 kernel_size: 5 pad: 2 group: 2 }", (2, 4, 9, 8)),
        ("Convolution", "convolution_param { num_output: 6 kernel_size: 11 stride: 4 }", (2, 3, 27, 31)),
        ("Convolution", "convolution_param { num_output: 6 kernel_size: 7 stride: 2 pad: 3 }", (2, 3, 20, 23)),
        ("Convolution", "convolution_param { num_output: 6 kernel_size: 3 stride: 2 }", (2, 3, 12, 13)),
        ("Convolution", "convolution_param { num_output: 6 kernel_size: 3 }", (2, 3, 4, 5, 6)),
        ("Convolution", "convolution_param { num_output: 5 kernel_size: 3 dilation: 2 pad: 3 }", (2, 3, 9, 10)),
        ("Convolution", "convolution_param { num_output: 5 kernel_size: 3 pad: 100 }", (1, 3, 5, 6)),
        ("Convolution", "convolution_param { num_output: 5 kernel_size: 4 stride: 2 pad: 1 }", (2, 3, 17)),
        ("Convolution", "convolution_param { num_output: 6 kernel_size: 3 stride: 2 pad: 1 group: 3 }", (2, 3, 9, 9)),
        ("InnerProduct", "inner_product_param { num_output: 5 }", (3, 4, 2, 2)),
        ("InnerProduct", "inner_product_param { num_output: 5 }", (1, 4, 2, 2)),
        ("InnerProduct", "inner_product_param { num_output: 5 transpose: true }", (3, 4, 2, 2)),
        ("InnerProduct", "inner_product_param { num_output: 5 axis: 2 transpose: true }", (1, 1, 7)),
        ("Pooling", "pooling_param { pool: MAX kernel_size: 3 stride: 2 pad: 1 }", (2, 3, 8, 9)),
        ("Pooling", "pooling_param { pool: MAX kernel_size: 2 stride: 3 }", (2, 3, 8, 9)),
        ("Pooling", "pooling_param { pool: MAX global_pooling: true }", (2, 3, 12, 12)),
        ("Pooling", "pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }", (2, 3, 8, 9)),
        ("Pooling", "pooling_param { pool: AVE global_pooling: true }", (2, 3, 8, 9)),
        ("LRN", "lrn_param { local_size: 5 alpha: 0.3 }", (2, 7, 3, 4)),
        ("Pooling", "pooling_param { pool: AVE kernel_size: 2 stride: 3 }", (2, 3, 8, 8)),
        ("LRN", "lrn_param { local_size: 3 alpha: 0.3 beta: 0.5 k: 2 }", (2, 2, 3, 4)),
        ("LRN", "lrn_param { local_size: 3 alpha: 0.3 norm_region: WITHIN_CHANNEL }", (2, 3, 5, 4)),
        ("Scale", "scale_param { bias_term: true bias_filler { value: 0.5 } }", (2, 3, 5, 4)),
        ("PReLU", "", (2, 3, 5, 4)),
    ],
)
def test_layer_has_equal_results_with_both_kernels(layer_type: str, text: str, shape: tuple[int, ...]) -> None:
    assert_kernels_agree(net_text(layer_type, text, [shape]))


@pytest.mark.parametrize(("name", "rows"), [("lenet", 3), ("cifar10_full", 2)])
def test_net_has_equal_results_with_both_kernels(name: str, rows: int) -> None:
    assert_kernels_agree(CONFIGS / name / "train_val.prototxt", rows=rows)


BLOCK_NET = """
        layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 4 dim: 3 dim: 19 dim: 17 } } }
        layer { name: "c1" type: "Convolution" bottom: "x" top: "c1"
          convolution_param {
              num_output: 8 kernel_size: 7 stride: 2 pad: 3 bias_term: false weight_filler { type: "msra" } } }
        layer { name: "b1" type: "BatchNorm" bottom: "c1" top: "c1" }
        layer { name: "s1" type: "Scale" bottom: "c1" top: "c1" scale_param { bias_term: true } }
        layer { name: "r1" type: "ReLU" bottom: "c1" top: "c1" }
        layer { name: "p1" type: "Pooling" bottom: "c1" top: "p1" pooling_param { kernel_size: 3 stride: 2 } }
        layer { name: "d2" type: "Convolution" bottom: "p1" top: "d2"
          convolution_param { num_output: 8 kernel_size: 3 pad: 1 group: 8 weight_filler { type: "msra" } } }
        layer { name: "n2" type: "LRN" bottom: "d2" top: "n2" }
        layer { name: "e2" type: "Convolution" bottom: "n2" top: "e2"
          convolution_param { num_output: 8 kernel_size: 1 weight_filler { type: "msra" } } }
        layer { name: "f2" type: "Bias" bottom: "e2" top: "e2" bias_param { filler { value: 0.2 } } }
        layer { name: "r2" type: "ReLU" bottom: "e2" top: "e2" relu_param { negative_slope: 0.1 } }
        layer { name: "sum" type: "Eltwise" bottom: "p1" bottom: "e2" top: "sum" }
        layer { name: "g3" type: "Convolution" bottom: "sum" top: "g3"
          convolution_param { num_output: 6 kernel_size: 3 group: 2 weight_filler { type: "msra" } } }
        layer { name: "q3" type: "Pooling" bottom: "sum" top: "q3"
          pooling_param { pool: AVE kernel_size: 3 stride: 1 } }
        layer { name: "cat" type: "Concat" bottom: "g3" bottom: "q3" top: "cat" }
        layer { name: "f" type: "InnerProduct" bottom: "cat" top: "f"
          inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
"""


@functools.cache
def compute_reference_results(phase: Any, rows: int) -> Any:
    """Return the results of the plain lowering, which does not depend on the library."""
    return jax.tree.map(np.asarray, compute_results(BLOCK_NET, phase, rows, "reference"))


@pytest.mark.parametrize("phase", ["TRAIN", "TEST"])
@pytest.mark.parametrize("rows", [1, 4])  # with one, weights are larger than what comes out
@pytest.mark.parametrize("library", ["oneDNN", "XLA"])
def test_block_of_many_types_has_equal_results_with_both_kernels(
    rows: int, phase: Any, library: str, request: pytest.FixtureRequest
) -> None:
    """The compiler may move and fuse operations between layers."""
    if library == "XLA":
        request.getfixturevalue("no_onednn")
    elif not onednn.is_available():
        pytest.skip(f"no oneDNN: {onednn.unavailable_reason()}")
    assert_close(compute_results(BLOCK_NET, phase, rows, "fast"), compute_reference_results(phase, rows))


@pytest.mark.long
@given(
    axes=st.lists(
        st.tuples(*(st.integers(*ends) for ends in [(1, 9), (1, 4), (1, 3), (0, 2), (0, 2), (1, 2)])),
        min_size=1,
        max_size=3,
    ),
    channels=st.sampled_from([(1, 1, 1), (4, 6, 1), (4, 6, 2), (4, 4, 4), (4, 8, 4), (17, 33, 1)]),
)
@example(axes=[(1, 2, 1, 2, 0, 1)], channels=(4, 6, 1))
@settings(max_examples=25)
def test_any_correlation_and_its_gradients_equal_xla(axes: Any, channels: tuple[int, int, int]) -> None:
    size, kernel, stride, low, high, dilation = zip(*axes, strict=True)
    num_inputs, num_outputs, groups = channels
    window = Window(kernel, stride, tuple(zip(low, high, strict=True)), dilation)
    if min(window.output_size(size)) < 1:
        return
    random = np.random.default_rng(0)
    shapes = [(2, num_inputs, *size), (num_outputs, num_inputs // groups, *kernel), (num_outputs,)]
    arrays = [jnp.asarray(random.normal(size=shape), jnp.float32) for shape in shapes]

    def xla_convolution(x: Any, weight: Any, bias: Any) -> Any:
        # padded by itself: of more than the kernel on one side only, XLA's gradient on CPUs is of memory it never wrote
        x = jnp.pad(x, [(0, 0), (0, 0), *window.padding])
        y = jax.lax.conv_general_dilated(x, weight, stride, "VALID", rhs_dilation=dilation, feature_group_count=groups)
        return y + bias.reshape(-1, *(1,) * len(size))

    def run(f: Any, x: Any, weight: Any, bias: Any, transform: Any = lambda a: a) -> Any:
        y, vjp = jax.vjp(f, transform(x), transform(weight), transform(bias))
        return y, *vjp(transform(jnp.cos(jnp.arange(y.size, dtype=jnp.float32)).reshape(y.shape)))

    result, expected = run(lambda x, w, b: correlate(x, w, window, b), *arrays), run(xla_convolution, *arrays)
    magnitudes = run(xla_convolution, *arrays, transform=jnp.abs)  # of what was summed, which may cancel
    for a, b, magnitude in zip(result, expected, magnitudes, strict=True):
        np.testing.assert_array_less(np.abs(a - b), 1e-5 * magnitude + 1e-12)


STRIDED_WINDOW = Window((3, 3), (2, 1), ((1, 0), (1, 1)), (1, 1))


def xla_strided_convolution(x: Any, weight: Any, bias: Any) -> Any:
    y = jax.lax.conv_general_dilated(x, weight, STRIDED_WINDOW.stride, STRIDED_WINDOW.padding, feature_group_count=2)
    return y + bias[:, None, None]


@pytest.mark.parametrize("argnums", [(0,), (1,), (0, 1), (2,), (0, 2), (1, 2)])
@pytest.mark.parametrize(
    ("kernel_function", "xla_function", "shapes"),
    [
        (
            lambda x, w, b: correlate(x, w, STRIDED_WINDOW, b),
            xla_strided_convolution,
            [(2, 4, 7, 6), (6, 2, 3, 3), (6,)],
        ),
        (lambda x, w, b: matmul_rows(x, w) + b, lambda x, w, b: x @ w.T + b, [(3, 4), (5, 4), (5,)]),
        (lambda x, w, b: matmul_rows(x, w, transpose=True) + b, lambda x, w, b: x @ w + b, [(3, 4), (4, 5), (5,)]),
    ],
)
def test_each_gradient_can_be_computed_alone(
    kernel_function: Any, xla_function: Any, shapes: Any, argnums: tuple[int, ...]
) -> None:
    random = np.random.default_rng(0)
    arrays = [jnp.asarray(random.normal(size=shape), jnp.float32) for shape in shapes]
    result, expected = (
        jax.grad(lambda *a, f=f: jnp.sin(f(*a)).sum(), argnums)(*arrays) for f in (kernel_function, xla_function)
    )
    for a, b in zip(result, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_onednn_is_available_on_linux_x86_64() -> None:
    """Without oneDNN, the tests would compare XLA with itself."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        pytest.skip("caffejax has oneDNN on Linux on x86-64")
    assert onednn.unavailable_reason() is None


@pytest.mark.parametrize(
    ("channels", "weight_shape", "pad", "expected"),
    [
        (4, (6, 4, 1, 1), (0, 0), "product"),
        (4, (6, 4, 1, 1), (1, 0), "convolution"),
        (4, (4, 1, 3, 3), (0, 0), "depthwise"),
        (4, (6, 2, 3, 3), (0, 0), "by group"),
    ],
)
def test_shapes_select_the_algorithm(channels: int, weight_shape: Any, pad: Any, expected: str) -> None:
    window = Window.symmetric(weight_shape[2:], (1, 1), pad)
    assert choose_algorithm(jnp.ones((2, channels, 5, 5)), jnp.ones(weight_shape), window) == expected


def test_jit_works_inside_of_other_transformations() -> None:
    square = compilation.Jitted(lambda x: x * x, "fast")
    three = jnp.float32(3)
    assert square(three) == 9
    assert jax.jit(lambda x: square(x) + 1)(three) == 10
    assert jax.grad(square)(three) == 6
    assert jax.vmap(square)(jnp.arange(3.0))[2] == 4
    assert jax.vmap(lambda x: square(three) + x)(jnp.arange(3.0))[2] == 11
    assert jax.grad(lambda x: compilation.Jitted(lambda y: x * y, "fast")(three))(three) == 3  # x is no argument
    assert jax.checkpoint(square)(three) == jax.linearize(square, three)[0] == 9
    assert compilation.Jitted(compilation.Jitted(lambda x: x + 1, "fast"), "fast")(three) == 4
    assert square.lower(three).compile()(three) == 9
    assert square.trace(three).lower().compile()(three) == 9


def test_a_function_that_raises_runs_once() -> None:
    calls = []

    def fail(x: Any) -> Any:
        calls.append(x)
        raise ValueError("fail")

    for kernels in ("fast", "reference"):
        calls.clear()
        with pytest.raises(ValueError, match="fail"):
            compilation.Jitted(fail, kernels)(jnp.float32(3))
        assert len(calls) == 1


def test_compiler_options_are_those_of_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first committed argument determines the platform, otherwise the default device."""
    monkeypatch.setattr(compilation, "has_only_cpus", lambda: False)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    asked: list[str] = []
    monkeypatch.setattr(compilation, "compiler_options", lambda platform: asked.append(platform) or {})
    cpu = jax.devices("cpu")[0]
    uncommitted_array, cpu_array = jnp.float32(3), jax.device_put(3.0, cpu)

    def find_platform(*args: Any, **kwargs: Any) -> str:
        compilation.Jitted(lambda x, y: x, "fast")._select(args, kwargs)
        return asked.pop()

    assert find_platform(uncommitted_array, 3) == "gpu"
    assert find_platform(uncommitted_array, cpu_array) == "cpu"
    assert find_platform(uncommitted_array, y={"deep": [cpu_array]}) == "cpu"
    with jax.default_device(cpu):
        assert find_platform(uncommitted_array, 3) == "cpu"
    compilation.Jitted(lambda x: x, "reference")._select((cpu_array,), {})
    assert not asked


@pytest.fixture
def _fresh_compiler_options() -> Iterator[None]:
    compilation.compiler_options.cache_clear()
    yield
    compilation.compiler_options.cache_clear()


@pytest.mark.usefixtures("_fresh_compiler_options")
def test_unknown_compiler_options_are_omitted(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"xla_no_such_option": 1, "xla_cpu_enable_fast_math": False}
    monkeypatch.setitem(compilation._OPTIONS, "cpu", options)
    assert compilation.compiler_options("cpu") == {"xla_cpu_enable_fast_math": False}


@pytest.mark.usefixtures("_fresh_compiler_options")
def test_flags_of_xla_replace_compiler_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(compilation._OPTIONS, "cpu", {"xla_cpu_enable_fast_math": False})
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    assert compilation.compiler_options("cpu") == {}


@pytest.mark.parametrize("target", sorted(compilation._OPTIONS))
def test_xla_knows_the_compiler_options_of_each_platform(target: str) -> None:
    """XLA accepts the options of all platforms on any platform."""
    for name, value in compilation._OPTIONS[target].items():
        assert compilation._is_accepted({name: value}, "cpu")
    assert not compilation._is_accepted({"xla_no_such_option": 1}, "cpu")


@pytest.mark.parametrize("kernels", ["fast", "reference"])
def test_gradcheck_supports_both_kernels(kernels: Any) -> None:
    text = net_text("Pooling", "pooling_param { kernel_size: 3 stride: 2 }", [(2, 3, 6, 7)])
    assert check_gradients(Net(text, "TRAIN", kernels=kernels)).ok
