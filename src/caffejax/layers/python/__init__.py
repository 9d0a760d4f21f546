"""Python layers: what `python_param` names decides what such a layer is."""

from __future__ import annotations

import inspect
import logging
from typing import Any

from ...errors import LayerError, did_you_mean
from ..context import Context, Site
from ..registry import register
from ..types import Gradient, LayerTraits, LayerType, PerLayer, Signature
from . import host, traced
from .builtin import builtin_type
from .modules import find_module, get_dotted

log = logging.getLogger("caffejax.net")


def make_python(ctx: Context, site: Site) -> LayerType:
    """A layer that is a class or function in a Python module of the user's.

    A class with pycaffe's methods (setup, reshape, forward, backward) runs on the host, between the compiled parts of
    the net, and makes its own gradients. A function of the bottoms, or a class whose instances are one, is traced
    and compiled with the rest. The module is looked for in sys.path, the working directory and the net's folder; where
    there is none, some layers of py-faster-rcnn, MNC, ENet and DetectNet are built in under their usual names.
    See [python_layers.md](python_layers.md).
    """
    p = ctx.param
    if not (p.module and p.layer):
        raise LayerError("python_param needs `module` and `layer`: a Python module, and a class or function in it")
    where = f"{p.module}.{p.layer}"
    if site.reading.no_python_layers:
        refusal = f"would run {where}, which is Python code, and no_python_layers (--no_python_layers) refuses that"
        return _built_in(ctx, site, LayerError(refusal))
    try:
        module = find_module(p.module, site.folder)
    except LayerError as error:  # there is no such module
        return _built_in(ctx, site, error)
    found = find_callable(module, p.layer)
    if not inspect.isclass(found):
        return traced.function_type(ctx.type, site, found, where)
    if callable(getattr(found, "forward", None)):
        return host.class_type(ctx.type, site, found, where)
    if "__call__" in dir(found):
        return traced.class_type(ctx.type, site, found, where)
    raise LayerError(
        f"class {where} has neither forward(self, bottom, top), as Caffe's Python layers have, nor __call__, as "
        "layers that can be traced"
    )


PYTHON = register(
    LayerType(
        Signature("Python", bottoms=(0, None), tops=(0, None), param="python_param"),
        PerLayer(make_python),
        Gradient(),
        LayerTraits(accepts_integers=True),  # what users' layers take is their affair
    )
)


def _built_in(ctx: Context, site: Site, missing: LayerError) -> LayerType:
    """Return the type that is built in under the module's and class's names; raise the error where there is none."""
    kind = builtin_type(ctx.param.module, ctx.param.layer)
    if kind is None:
        raise missing
    for problem in kind.signature.count_problems(len(site.layer.bottom), len(site.layer.top)):
        raise LayerError(f"{ctx.param.layer}, which is built in, {problem}")
    why = "Python layers are refused" if site.reading.no_python_layers else f"there is no module '{ctx.param.module}'"
    log.info("Layer '%s': %s; using what is built in", site.layer.name, why)
    return kind


def find_callable(module: Any, name: str) -> Any:
    """Return the class or function of that name.

    Raises:
        LayerError: if the module has none; the message names the nearest.
    """
    found = get_dotted(module, name)
    if not callable(found):
        known = [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")]
        what = "no" if found is None else f"a {type(found).__name__}, but no"
        file = getattr(module, "__file__", None)
        place = f" ({file})" if file else ""
        raise LayerError(
            f"module '{module.__name__}'{place} has {what} class or function '{name}'{did_you_mean(name, known)}"
        )
    return found


def name_python_layer(layer: Any, user: Any) -> str:
    """Have a LayerParameter name a class or function of the user's as its `python_param`; return the type's name.

    Raises:
        LayerError: if it cannot be found by name, as it was made inside a function.
    """
    module, name = user.__module__, user.__qualname__
    if get_dotted(find_module(module, None), name) is not user:
        raise LayerError(f"{name} cannot be found in module '{module}': define it at the top level of a module")
    layer.python_param.module, layer.python_param.layer = module, name
    return PYTHON.name
