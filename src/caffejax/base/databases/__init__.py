"""Databases of records, LMDB and LevelDB, whatever the records hold.

`__init__.pyi` lists the public names. Each is imported when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
