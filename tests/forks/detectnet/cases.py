"""What several files of tests share: settings, and functions that draw bottoms."""

import numpy as np

Random, Shape = np.random.Generator, tuple[int, ...]
