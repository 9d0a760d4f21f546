"""Data layers and their sources.

`__init__.pyi` lists the public names. Each is imported when it is first used. The registry of layer types imports the
module of a data layer when a net has such a layer.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
