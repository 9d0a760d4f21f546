"""Export a net in each form, run the export, and compare its outputs with the net."""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from caffejax import CaffejaxError, Net
from caffejax.base.variables import Variables
from caffejax.core.data.synthetic_inputs import complete_inputs
from caffejax.core.graph.reshape import reshape_graph
from caffejax.core.layers.context import Phase
from caffejax.core.schema import read_net
from caffejax.export import InferenceModel, export_stablehlo, make_inference_model
from caffejax.export.flax import write_flax
from export import flax_worker
from export.compare_outputs import FORMS, Arrays, count_large_errors, find_largest, relative_errors, unordered_distances
from export.onnx.onnx_oracle import compile_net, export_net, outputs_with_row_counts, run_onnx
from export.random_params import draw_variables

PERTURBATION = 1e-6  # what inputs are moved by, to see how far the net itself moves


def assess(path: str, phase: str = "TEST", forms: Sequence[str] = FORMS) -> dict[str, Any]:
    """Return the assessment of a net in a file, see `assess_subject`, or the reason why there is none; and its time."""
    start = time.monotonic()
    try:
        result = assess_subject(make_subject(path, phase), forms)
    except CaffejaxError as error:
        return {"refused": str(error)}
    return result | {"seconds": round(time.monotonic() - start, 1)}


def assess_subject(subject: InferenceModel, forms: Sequence[str] = FORMS) -> dict[str, Any]:
    """Return the assessment of a net: its outputs, and for each form the largest errors or the reason for a refusal.

    `moves` is the change of the outputs for other inputs, `sways` the change for slightly different inputs. Errors and
    changes are fractions of an output's largest number; `beyond` counts the numbers with errors above the tolerance.
    """
    try:
        compute = compile_net(subject, subject.inputs)
    except CaffejaxError as error:
        return {form: {"refused": str(error)} for form in forms}
    first_inputs, second_inputs = _draw_inputs(subject, 1), _draw_inputs(subject, 2)
    expected = compute(first_inputs)
    signs = np.random.default_rng(3)
    perturbed_inputs = {
        name: (x * (1 + PERTURBATION * signs.choice([-1, 1], x.shape))).astype(x.dtype)
        for name, x in first_inputs.items()
    }
    result: dict[str, Any] = {
        "outputs": {name: [list(a.shape), find_largest(a)] for name, a in expected.items()},
        "moves": relative_errors(compute(second_inputs), expected),
        "sways": relative_errors(compute(perturbed_inputs), expected),
    }
    for form in forms:
        try:
            outputs = _FORMS[form](subject, first_inputs)
            result |= {
                form: relative_errors(outputs, expected),
                f"{form}_beyond": count_large_errors(outputs, expected),
                f"{form}_in_any_order": unordered_distances(outputs, expected),
            }
        except CaffejaxError as error:
            result[form] = {"refused": str(error)}
    return result


def make_subject(path: str, phase: Phase, placeholder_size: tuple[int, int] = (1, 1)) -> InferenceModel:
    """Return the net up to layers that run on the host, and the bottoms of its last layers.

    The last layers may hide or magnify errors. Images of 1 x 1 pixels get the size `placeholder_size`.
    """
    net = _resize_placeholders(Net(path, phase), placeholder_size)
    read_last = [name for layer in net.graph.layers[-1:] for name in layer.bottoms]
    inference_net = make_inference_model(net, draw_variables(net), None if net.outputs else read_last).net
    output_names, host_blobs = list(inference_net.outputs), set[str]()
    for layer in inference_net.graph.layers:
        if layer.type.on_host or host_blobs.intersection(layer.bottoms):
            host_blobs.update(layer.tops)
            output_names += layer.bottoms
        elif not layer.type.is_input and set(layer.tops).intersection(inference_net.outputs):
            output_names += layer.bottoms
    blobs = net.graph.blobs.keys() - host_blobs - set(inference_net.input_names)  # none that a later layer writes over
    unique_names = [name for name in dict.fromkeys(output_names) if name in blobs]
    variables = _measure_statistics(path, phase, draw_variables(net), unique_names, placeholder_size)
    return make_inference_model(net, variables, unique_names)


def _resize_placeholders(net: Net, size: tuple[int, int]) -> Net:
    shapes = {name: net.graph.blobs[name].shape for name in net.input_names}
    new_shapes = {name: (*shape[:2], *size) for name, shape in shapes.items() if shape[2:] == (1, 1)}
    return net.with_graph(reshape_graph(net.graph, new_shapes), reshaped=True) if new_shapes else net


def _measure_statistics(
    path: str, phase: Phase, variables: Variables, outputs: list[str], placeholder_size: tuple[int, int]
) -> Variables:
    """The variables with statistics in BatchNorm that a batch has: as after training, no signal grows over depth."""
    message = read_net(path)
    for layer in message.layer:
        if layer.type == "BatchNorm":
            layer.batch_norm_param.use_global_stats = False
            if layer.batch_norm_param.scale_bias:  # NVIDIA's, which takes no batch's in TEST: Intel's does
                layer.batch_norm_param.filler.SetInParent()
    net = _resize_placeholders(Net(message, phase, file=path), placeholder_size).for_inference(outputs)
    state = {layer.key: variables.state[layer.key] for layer in net.graph.layers if layer.type.name == "BatchNorm"}
    if not state:
        return variables
    zero_state = {**variables.state, **jax.tree.map(np.zeros_like, state)}
    compute = jax.jit(lambda inputs: net.apply(variables.params, zero_state, inputs)[1])
    batch_state = compute(_draw_inputs(InferenceModel(net, variables), 0))
    updated = {key: _raise_variances(batch_state[key]) for key in state if key in batch_state}
    return variables._replace(state={**variables.state, **updated})


def _raise_variances(statistics: dict[str, Any]) -> dict[str, Any]:
    """Raise each variance to at least a tenth of the mean one, since smaller ones would magnify rounding."""
    variance = statistics["variance"]
    return {**statistics, "variance": np.maximum(variance, 0.1 * np.mean(variance) or 1.0)}


def _draw_inputs(subject: InferenceModel, seed: int) -> dict[str, np.ndarray]:
    """Return random inputs; boxes and image sizes fit the images."""
    random = np.random.default_rng(seed)
    arrays = complete_inputs(subject.net.graph, {}, random)
    inputs = {name: arrays[name].astype(blob.dtype) for name, blob in subject.inputs.items()}
    height, width = next((x.shape[2:] for x in inputs.values() if x.ndim == 4), (1, 1))
    for name, x in inputs.items():
        if name == "im_info":
            inputs[name] = np.resize(np.float32([height, width, 1]), x.shape)
        elif name == "rois":
            corners = np.sort(random.uniform(size=(len(x), 2, 2)), axis=1) * [width - 1, height - 1]
            boxes = np.concatenate([np.zeros((len(x), 1)), corners.reshape(-1, 4)], 1)
            inputs[name] = boxes.reshape(x.shape).astype(np.float32)
    return inputs


def _run_onnx(subject: InferenceModel, inputs: Arrays) -> Arrays:
    return run_onnx(export_net(subject), inputs)


def _run_flax(subject: InferenceModel, inputs: Arrays) -> Arrays:
    with tempfile.TemporaryDirectory() as folder:
        write_flax(subject, Path(folder) / "net")
        arguments = [np.moveaxis(x, 1, -1) if x.ndim > 2 else x for x in inputs.values()]
        (result,) = flax_worker.run_source(str(Path(folder) / "net"), [arguments])
    return {n: np.moveaxis(x, -1, 1) if x.ndim > 2 else x for n, x in zip(subject.outputs, result, strict=True)}


def _run_stablehlo(subject: InferenceModel, inputs: Arrays) -> Arrays:
    padded_subject = InferenceModel(subject.net.for_inference(outputs_with_row_counts(subject)), subject.variables)
    exported = jax.export.deserialize(
        export_stablehlo(padded_subject, platforms=["cpu"], symbolic_batch=False).serialize()
    )
    result = jax.jit(exported.call, compiler_options={"xla_backend_optimization_level": 0})(dict(inputs))
    return {
        name: np.asarray(blob)
        for name, blob in padded_subject.net.strip_padding(result).items()
        if name in subject.outputs
    }


_FORMS = {"onnx": _run_onnx, "flax": _run_flax, "stablehlo": _run_stablehlo}
