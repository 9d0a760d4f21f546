"""The foreign functions read memory according to shapes, so wrong shapes and types are refused before a call."""

import jax.numpy as jnp
import pytest

from caffejax.core.ops.window import Window
from caffejax.cpu.kernels import onednn


@pytest.mark.skipif(onednn.unavailable_reason() is not None, reason="needs oneDNN")
def test_kernels_refuse_arrays_of_wrong_shapes() -> None:
    ones = jnp.ones
    with pytest.raises(ValueError, match="7 inputs, but the weight expects 6"):
        onednn.matmul(ones((2, 7)), ones((4, 6)), transpose_b=True)
    with pytest.raises(ValueError, match=r"the bias has shape \(3,\), but must have shape \(4,\)"):
        onednn.matmul(ones((2, 6)), ones((4, 6)), ones(3), transpose_b=True)
    with pytest.raises(TypeError, match="float32, not float32, float32, float16"):
        onednn.matmul(ones((2, 6)), ones((4, 6)), ones(4, jnp.float16), transpose_b=True)
    plain = Window.symmetric((3, 3), (1, 1), (0, 0))
    with pytest.raises(ValueError, match="3 inputs, but the weight expects 2"):
        onednn.convolution(ones((1, 5, 5, 3)), ones((4, 2, 3, 3)), None, plain)
