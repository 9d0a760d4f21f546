"""Imports JAX, whose import draws numbers of NumPy's global generator, and puts the generator's state back.

Scripts set the state (`np.random.seed`) before they import caffe, and expect the same numbers as with Caffe.
"""

from contextlib import suppress

import numpy as np

_state = np.random.get_state()
import jax  # noqa: E402, F401

np.random.set_state(_state)

with suppress(ImportError):  # scripts use PIL.Image without importing it, because Caffe's caffe.io imports it
    import PIL.Image  # noqa: F401
