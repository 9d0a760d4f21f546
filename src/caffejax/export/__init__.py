"""Export of nets to StableHLO, ONNX and flax: source code that runs without caffejax, and modules that call the net.

`__init__.pyi` lists the public names. Each is imported when it is first used: ONNX's need the package `onnx`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
