"""Alias of `caffejax.pycaffe`: importing this package makes the module `caffe` the module `caffejax.pycaffe`.

Compiled programs are stored for later processes; see `caffejax.enable_compilation_cache`. OpenMP's
threads do not spin for long, so that several processes do not stop each other; see `limit_openmp_spinning` there.
"""

import sys

import caffejax.pycaffe

sys.modules[__name__] = caffejax.pycaffe
if __name__ == "caffe":
    caffejax.pycaffe.install()
    caffejax.limit_openmp_spinning()
    caffejax.enable_compilation_cache()
