"""The memory plan of a program: no value is overwritten while it is still in use."""

from __future__ import annotations

import pytest
from frozen_nets import assert_frozen_net_equals_net, find_compiled_types, make_net_text
from hypothesis import HealthCheck, given, settings
from random_nets import draw_nets

from caffejax.cpu.frozen import partition
from caffejax.cpu.kernels import onednn_program

pytestmark = pytest.mark.skipif(not onednn_program.is_available(), reason="needs oneDNN")

SHAPE = (1, 16, 6, 6)


def conv(top: str, bottom: str, outputs: int = 16) -> str:
    return f"{top} Convolution {bottom} | num_output: {outputs} kernel_size: 3 pad: 1"


AB = (conv("a", "x"), conv("b", "x"))
NETS = {
    "a function of a value, with the value": [*AB, "s Sigmoid a", "e Eltwise a s"],
    "likewise, of what no convolution made": ["a LRN x", "s Sigmoid a", "e Eltwise a s | operation: PROD"],
    "a function of a value, with the value twice": ["a LRN x", "s Sigmoid a", "e Eltwise a s a"],
    "a value as a factor, then added": [*AB, "p Eltwise b a | operation: PROD", "e Eltwise p a"],
    "a value as a bound, then added": [*AB, "m Eltwise b a | operation: MAX", "e Eltwise m a"],
    "a value twice in one sum": [*AB, "e Eltwise b a a"],
    "a value that grows, again": [*AB, "e Eltwise a b a"],
    "a concatenation of a value with itself": [*AB, "c Concat a a", conv("d", "c")],
    "likewise three times": [*AB, "c Concat a b a a", conv("d", "c")],
    "two concatenations of the same": [*AB, "c Concat a b", "d Concat b a", "e Eltwise c d"],
    "concatenations of concatenations": [*AB, "c Concat a b", "d Concat c a", conv("f", "d"), "e Concat d f c"],
    "parts that are read later": [*AB, "c Concat a b", conv("d", "c"), "e Eltwise d a b"],
    "parts that are changed later": [*AB, "c Concat a b", "r Sigmoid a", conv("d", "c"), "e Eltwise d r b"],
    "parts off the blocks": [conv("a", "x", 20), conv("b", "x", 33), "c Concat a b x", conv("d", "c")],
    "the last part off the blocks": [conv("a", "x", 32), conv("b", "x", 20), "c Concat a b", conv("d", "c")],
    "a middle part off the blocks": [conv("a", "x", 32), conv("b", "x", 20), "c Concat a b x", conv("d", "c")],
    "a part and its slices": [conv("a", "x", 32), "b Slice a > c", "d Concat a c", "e Concat b a c", conv("f", "e")],
    "pooling in its place": ["p Pooling x | kernel_size: 3 stride: 1 pad: 1", conv("a", "p"), "c Concat p a p"],
    "a sum in the place of what it adds, which is wanted": [*AB, "e Eltwise b a", "a2 ReLU a"],
    "a chain of residuals": [*AB, "e Eltwise b a", "r ReLU e", conv("c", "r"), "f Eltwise c r", conv("d", "f"),
                             "g Eltwise d f", "h Eltwise g r"],
    "two readers in place": [conv("a", "x"), "a ReLU a", conv("b", "a"), "p Pooling a | kernel_size: 2 stride: 2",
                             conv("c", "a"), "e Eltwise b c"],
    "a shape that is read as another": [*AB, "f Flatten a", "s Sigmoid f", "g Flatten b", "e Eltwise f s g",
                                        "t TanH a", "i InnerProduct t | num_output: 3"],
    "a reshaped value in a sum": [*AB, "f Reshape a | shape { dim: 0 dim: 0 dim: -1 dim: 1 }",
                                  "g Reshape b | shape { dim: 0 dim: 0 dim: -1 dim: 1 }", "e Eltwise f g", "r ReLU a"],
    "slices that are changed": [conv("a", "x", 32), "b Slice a > c | slice_point: 16", "r Sigmoid b",
                                conv("d", "c"), "e Eltwise r b d c", "f Concat c b"],
    "slices of a concatenation": [*AB, "c Concat a b", "d Slice c > e | slice_point: 8", conv("f", "d"), "g TanH e",
                                  "h Concat g f d"],
    "numbers by channel of one cell": ["a Pooling x | pool: AVE global_pooling: true", "n BatchNorm a", "s Scale n",
                                       "b BNLL s", "c Bias b", "r ReLU c", "d Scale r | bias_term: true"],
    "slices of the input": ["b Slice x > c | slice_point: 8", "m Eltwise b c | operation: MAX", "s Sigmoid c"],
    "functions of permuted values": ["a Permute x | order: 0 order: 2 order: 3 order: 1", "p PReLU a",
                                     "b Permute p | order: 0 order: 3 order: 2 order: 1",
                                     "s Sigmoid b", "l LRN a"],
    "cut by layers of XLA's": [*AB, "n BNLL a", conv("c", "n"), "e Eltwise c a b", "m BNLL e", "d Concat m a"],
    "depthwise, with blocks that are not full": [
        "a Convolution x | num_output: 20 kernel_size: 1", "s Sigmoid a",
        "d Convolution s | num_output: 20 group: 20 kernel_size: 3 pad: 1", "e Eltwise d s", "l LRN e"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("case", "batch"),
    [*((case, 1) for case in list(NETS)[::2]), ("numbers by channel of one cell", 3), ("slices of a concatenation", 3)]
    + [pytest.param(case, 1, marks=pytest.mark.long) for case in list(NETS)[1::2]]
    + [pytest.param(case, 2, marks=pytest.mark.long) for case in NETS],
)
def test_values_are_not_overwritten_before_their_last_reader(case: str, batch: int) -> None:
    frozen_net = assert_frozen_net_equals_net(make_net_text((batch, *SHAPE[1:]), *NETS[case]))
    assert find_compiled_types(frozen_net)


def test_layers_beside_a_blob_of_more_axes_than_onednn_has_are_compiled() -> None:
    shape = " ".join(f"dim: {n}" for n in (0, 2, 8, 2, 3, *[1] * 7, 2, 3))
    layers = [AB[0], f"s Reshape a | shape {{ {shape} }}", "r ReLU s", conv("b", "a")]
    frozen_net = assert_frozen_net_equals_net(make_net_text(SHAPE, *layers), ("b", "r"))
    assert "Convolution" in find_compiled_types(frozen_net)


@pytest.mark.parametrize("outputs", [("a",), ("a", "e"), ("b", "c", "e"), ("c",), ("d", "a", "f")])
def test_inner_blobs_can_be_outputs(outputs: tuple[str, ...]) -> None:
    layers = [*AB, "e Eltwise b a", "c Concat a b", conv("d", "c"), "f Flatten d"]
    assert_frozen_net_equals_net(make_net_text(SHAPE, *layers), outputs)


@pytest.mark.parametrize(
    "case", ["a chain of residuals", "a sum in the place of what it adds, which is wanted", "two readers in place"]
)
def test_large_nets_compute_a_few_images_at_a_time(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "_LARGE_BYTES", 0)
    for batch, expected_images in ((4, 1), (8, 4), (9, 3), (11, 1)):
        frozen_net = assert_frozen_net_equals_net(make_net_text((batch, *SHAPE[1:]), *NETS[case]))
        programs = [onednn_part.executable.program for onednn_part in frozen_net.compile().programs.values()]
        assert expected_images in [program.result_shapes[0][0] for program in programs]


def assert_equal_with_and_without_small_batches(net_and_outputs: tuple[str, tuple[str, ...]]) -> None:
    text, output_names = net_and_outputs
    for min_bytes in {
        partition._LARGE_BYTES,
        partition._LARGE_BYTES if "shape { dim: 1 dim" in text else 0,
    }:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(partition, "_LARGE_BYTES", min_bytes)
            assert_frozen_net_equals_net(text, output_names)


HYPOTHESIS_OPTIONS = {
    "deadline": None,
    "database": None,
    "derandomize": True,
    "suppress_health_check": list(HealthCheck),
}


@settings(max_examples=6, **HYPOTHESIS_OPTIONS)
@given(draw_nets())
def test_random_nets_give_equal_outputs(net_and_outputs: tuple[str, tuple[str, ...]]) -> None:
    assert_equal_with_and_without_small_batches(net_and_outputs)


@pytest.mark.long
@settings(max_examples=25, **HYPOTHESIS_OPTIONS)
@given(draw_nets(max_layers=14))
def test_larger_random_nets_give_equal_outputs(net_and_outputs: tuple[str, tuple[str, ...]]) -> None:
    assert_equal_with_and_without_small_batches(net_and_outputs)
