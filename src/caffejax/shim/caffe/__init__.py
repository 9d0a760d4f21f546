"""Alias of `caffejax.pycaffe`: importing this package makes the module `caffe` the module `caffejax.pycaffe`.

Compiled programs are stored for later processes; see `caffejax.process_settings.enable_compilation_cache`.
"""

import sys

import caffejax.process_settings
import caffejax.pycaffe

sys.modules[__name__] = caffejax.pycaffe
if __name__ == "caffe":
    caffejax.pycaffe.install()
    caffejax.process_settings.enable_compilation_cache()
