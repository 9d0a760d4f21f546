"""Data layers and their sources.

`__init__.pyi` lists the names. Each is imported when it is first used; the registry of layer types imports a data
layer's module when a net has such a layer.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
