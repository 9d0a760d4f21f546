"""Makes `import caffe` mean this package."""

from __future__ import annotations

from ..aliases import declared
from ..process import alias_package


def install() -> None:
    """Have `import caffe`, `import caffe.io` and so on give this package and its modules, from now on.

    They are found before a Caffe that is installed. Calling it again does no harm.

    Raises:
        CaffejaxError: if another `caffe` was imported already.
    """
    alias_package("caffe", declared("caffe"))
