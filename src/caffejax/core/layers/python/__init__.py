"""Python layers: `type: "Python"` with a user's class or function, or a built-in replacement."""

from __future__ import annotations

import inspect
import logging
from dataclasses import replace
from typing import Any

from ....base.errors import LayerError, did_you_mean, require
from ...schema.caffe_pb2 import PythonParameter
from ..context import Context, LayerDefinition
from ..declaration import register
from ..packages import find_builtin_type
from ..types import LayerType
from . import host_layers, traced_layers
from .user_code import get_dotted, import_user_module

log = logging.getLogger("caffejax.net")


@register("Python", bottoms=(0, None), tops=(0, None), param="python_param", per_layer=True, accepts_integers=True)
def make_python(p: PythonParameter, definition: LayerDefinition, *, ctx: Context) -> LayerType:
    """Return a layer that is computed by the user's Python class or function that `python_param` names.

    A class with pycaffe's methods (setup, reshape, forward, backward) runs on the host, between compiled parts or as a
    callback; its backward method computes the gradients. A function of the bottoms, or a class whose instances can be
    called like such a function, is traced and compiled with the net. With an attribute `stops_gradient = True`, layers
    before it get no gradient through it, as for labels and sampled boxes. The module is searched for in sys.path, the
    working directory and the net's folder. If it is missing, some layers of py-faster-rcnn, MNC, ENet and DetectNet are
    available under their usual names, since they are built in.
    See [python_layers.md](python_layers.md).
    """
    layer_type, num_parts = _make_type(p, definition, ctx), definition.config.num_parts
    require(
        bool(definition.layer.bottom) or num_parts == 1 or layer_type.is_input,
        "has no bottoms, and is traced or has blobs, so its top has one size on each device, and cannot be divided "
        f"among {num_parts} devices; let each device process a full batch",
    )
    return layer_type


def _make_type(p: PythonParameter, definition: LayerDefinition, ctx: Context) -> LayerType:
    if not (p.module and p.layer):
        raise LayerError("python_param must set `module`, a Python module, and `layer`, a class or function in it")
    full_name = f"{p.module}.{p.layer}"
    if definition.config.no_python_layers:
        refusal = f"would run {full_name}, which is Python code, but no_python_layers (--no_python_layers) forbids it"
        return _builtin_or_raise(p, definition, LayerError(refusal))
    try:
        module = import_user_module(p.module, definition.folder)
    except LayerError as error:  # the module is missing
        return _builtin_or_raise(p, definition, error)
    user_code = find_callable(module, p.layer)
    stops_gradient = bool(getattr(user_code, "stops_gradient", False))
    python_type = replace(ctx.type, gradient=replace(ctx.type.gradient, stops_gradient=stops_gradient))
    if not inspect.isclass(user_code):
        return traced_layers.make_function_type(python_type, definition, user_code, full_name)
    if callable(getattr(user_code, "forward", None)):
        return host_layers.make_class_type(python_type, definition, user_code, full_name)
    if "__call__" in dir(user_code):
        return traced_layers.make_class_type(python_type, definition, user_code, full_name)
    raise LayerError(
        f"class {full_name} must have forward(self, bottom, top), like Caffe's Python layers, or __call__, like "
        "traced layers"
    )


def _builtin_or_raise(p: PythonParameter, definition: LayerDefinition, error: LayerError) -> LayerType:
    """Return the built-in type for the layer's module and class, or raise `error` if the class is not built in."""
    layer_type: LayerType | None = find_builtin_type(p.module, p.layer)
    if layer_type is None:
        raise error
    for problem in layer_type.signature.iterate_count_problems(len(definition.layer.bottom), len(definition.layer.top)):
        raise LayerError(f"{p.layer}, which is built in, {problem}")
    is_forbidden = definition.config.no_python_layers
    reason = "Python layers are forbidden" if is_forbidden else f"there is no module '{p.module}'"
    log.info("Layer '%s': %s; using the built-in layer", definition.layer.name, reason)
    return layer_type


def find_callable(module: Any, name: str) -> Any:
    """Return the class or function `name` of a module. The name may contain dots.

    Raises:
        LayerError: if the module lacks such a class or function. The message suggests the most similar name.
    """
    value = get_dotted(module, name)
    if not callable(value):
        names = [n for n, member in vars(module).items() if callable(member) and not n.startswith("_")]
        file = getattr(module, "__file__", None)
        location = f" ({file})" if file else ""
        if value is not None:
            raise LayerError(
                f"'{name}' in module '{module.__name__}'{location} must be a class or function, but is of type "
                f"{type(value).__name__}"
            )
        raise LayerError(
            f"module '{module.__name__}'{location} has no class or function '{name}'{did_you_mean(name, names)}"
        )
    return value


def name_python_layer(layer: Any, user_code: Any) -> str:
    """Set the `python_param` of a LayerParameter to a user's class or function; return the name of the layer type.

    Raises:
        LayerError: if the class or function cannot be imported by its name, for example because it is defined inside a
            function.
    """
    module, name = user_code.__module__, user_code.__qualname__
    if get_dotted(import_user_module(module, None), name) is not user_code:
        raise LayerError(f"{name} cannot be imported from module '{module}'; define it at the top level of a module")
    layer.python_param.module, layer.python_param.layer = module, name
    return make_python.type.name
