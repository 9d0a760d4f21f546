"""Alias of `caffejax.pycaffe`: importing this package makes the module `caffe` the module `caffejax.pycaffe`.

Compiled programs are stored for later processes; see `caffejax.cpu.process_settings.enable_compilation_cache`. OpenMP's
threads do not spin for long, so that several processes do not stop each other; see `limit_openmp_spinning` there.
"""

import sys

import caffejax.cpu.process_settings
import caffejax.pycaffe

sys.modules[__name__] = caffejax.pycaffe
if __name__ == "caffe":
    caffejax.pycaffe.install()
    caffejax.cpu.process_settings.limit_openmp_spinning()
    caffejax.cpu.process_settings.enable_compilation_cache()
