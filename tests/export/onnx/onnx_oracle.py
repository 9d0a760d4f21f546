"""The oracle of ONNX exports: onnxruntime runs the model, and JAX the net."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
import onnx
import onnxruntime

from caffejax.core.program.schedule import find_padded_blobs
from caffejax.export import BatchError, InferenceModel
from caffejax.export.onnx import export_onnx

Arrays = Mapping[str, np.ndarray]


def export_net(subject: InferenceModel, **options: Any) -> onnx.ModelProto:
    """The model, for any number of rows where the net takes that."""
    try:
        return export_onnx(subject, **options)
    except BatchError:
        return export_onnx(subject, **options, symbolic_batch=False)


def run_onnx(model: onnx.ModelProto, inputs: Arrays) -> dict[str, np.ndarray]:
    """Return onnxruntime's results."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def compile_net(subject: InferenceModel, structs: Mapping[str, Any]) -> Callable[[Arrays], dict[str, np.ndarray]]:
    """The net for inputs of those shapes, compiled in little time; what it gives is without rows of padding."""
    blob_names = outputs_with_row_counts(subject)
    apply = jax.jit(lambda arrays: subject.net.apply(*subject.variables, arrays, blobs=blob_names)[0])
    program = apply.lower(dict(structs)).compile(compiler_options={"xla_backend_optimization_level": 0})

    def outputs(inputs: Arrays) -> dict[str, np.ndarray]:
        blobs = {name: np.asarray(blob) for name, blob in subject.net.strip_padding(program(dict(inputs))).items()}
        return {name: blobs[name] for name in subject.outputs}

    return outputs


def outputs_with_row_counts(subject: InferenceModel) -> list[str]:
    """Return the outputs, and the blobs that determine the number of their valid rows."""
    row_sources = find_padded_blobs(subject.layers)
    return list(
        dict.fromkeys([*subject.outputs, *(row_sources[name] for name in subject.outputs if name in row_sources)])
    )


def compute_net_outputs(subject: InferenceModel, inputs: Arrays) -> dict[str, np.ndarray]:
    """Return the net's results, without padded rows."""
    return compile_net(subject, inputs)(inputs)


def assert_equal(actual: Arrays, expected: Arrays, tolerance: float = 1e-4) -> None:
    """Each output has the shape that is wanted, and its numbers, within a share of the largest of them."""
    assert actual.keys() == expected.keys()
    for name, array in expected.items():
        assert actual[name].shape == array.shape, name
        finite = array[np.isfinite(array)]
        scale = max(float(np.abs(finite).max(initial=0)), 1e-3)
        np.testing.assert_allclose(actual[name] / scale, array / scale, atol=tolerance, rtol=0, err_msg=name)


def find_batched_inputs(model: onnx.ModelProto) -> set[str]:
    """The inputs that take any number of rows."""
    return {v.name for v in model.graph.input if any(d.dim_param for d in v.type.tensor_type.shape.dim)}


def repeat_rows(inputs: Arrays, rows: set[str]) -> dict[str, np.ndarray]:
    """Return these inputs with their rows repeated."""
    return {name: np.concatenate([x, x]) if name in rows else x for name, x in inputs.items()}


def assert_model_equals_net(subject: InferenceModel, inputs: Arrays, **options: Any) -> onnx.ModelProto:
    """Check that the model's results equal the net's, for these inputs and, if accepted, twice as many rows."""
    model = export_net(subject, **options)
    assert_equal(run_onnx(model, inputs), compute_net_outputs(subject, inputs))
    if rows := find_batched_inputs(model):
        repeated = repeat_rows(inputs, rows)
        assert_equal(run_onnx(model, repeated), compute_net_outputs(subject, repeated))
    return model
