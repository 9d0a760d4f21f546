"""Training of nets: the training loop, learning-rate policies, update rules, snapshots, and what is observed meanwhile.

`__init__.pyi` lists the public names. Each is imported when it is first used, because pycaffe observes nets, too, and
does not train them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
