"""Sizes that are computed when a model runs, against Python's own arithmetic."""

import numpy as np
import pytest
from jax import export
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from caffejax.export.onnx.onnx_builder import OnnxBuilder

SIZES = {
    "7": lambda b, c: 7,
    "b": lambda b, c: b,
    "3*b + 2*c - 1": lambda b, c: 3 * b + 2 * c - 1,
    "b^3*c": lambda b, c: b**3 * c,
    "floordiv(b + 5, 3)": lambda b, c: (b + 5) // 3,
    "floordiv(c - 3*b, 4)": lambda b, c: (c - 3 * b) // 4,
    "mod(c - 3*b, 4)": lambda b, c: (c - 3 * b) % 4,
    "max(b, 2*c) - min(b*c, 5)": lambda b, c: max(b, 2 * c) - min(b * c, 5),
    "floordiv(mod(b, 3) + c^2, 2)*b": lambda b, c: (b % 3 + c**2) // 2 * b,
    "-1*b": lambda b, c: -b,
}


@pytest.mark.parametrize("text", SIZES)
def test_symbolic_sizes_are_computed_at_run_time(text: str) -> None:
    builder = OnnxBuilder(18, ["x"])
    builder.sizes.sources.update(b=("x", 0), c=("x", 1))
    (size,) = export.symbolic_shape(text, scope=export.SymbolicScope())
    name = builder.sizes.add_size_vector(size)
    graph = helper.make_graph(
        builder.sizes.nodes,
        "sizes",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", "c"])],
        [helper.make_tensor_value_info(name, TensorProto.INT64, [1])],
        list(builder.initializers.values()),
    )
    model = ReferenceEvaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    for b, c in ((1, 1), (2, 7), (5, 3), (8, 2)):
        (result,) = model.run([name], {"x": np.zeros((b, c), np.float32)})
        assert result.tolist() == [SIZES[text](b, c)], (b, c)
