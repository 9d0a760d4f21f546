"""Alias of `caffejax.pycaffe`: after `import caffe` of this package, the module `caffe` is `caffejax.pycaffe`."""

import sys

import caffejax.pycaffe

sys.modules[__name__] = caffejax.pycaffe
if __name__ == "caffe":
    caffejax.pycaffe.install()
