"""Windows with more padding than necessary."""

import pytest

from caffejax.core.ops.window import Window


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding", "expected"),
    [
        (112, 3, 2, (1, 0), (1, 1)),  # what is added is left over
        (224, 7, 2, (3, 2), (3, 3)),
        (111, 3, 2, (1, 1), (1, 1)),
        (10, 2, 1, (1, 0), (1, 0)),  # a window more would come of it
        (10, 5, 3, (2, 0), (2, 0)),
        (10, 3, 2, (0, 1), (0, 1)),  # low ends stay
        (10, 1, 4, (0, -1), (0, 0)),  # nor is anything cut off
    ],
)
def test_equalize_padding(
    size: int, kernel: int, stride: int, padding: tuple[int, int], expected: tuple[int, int]
) -> None:
    window = Window((kernel,), (stride,), (padding,), (1,))
    result = window.equalize_padding((size,))
    assert result.padding == (expected,)
    assert result.output_size((size,)) == window.output_size((size,))
