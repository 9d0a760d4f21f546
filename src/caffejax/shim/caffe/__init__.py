"""`import caffe` where it is to mean caffejax: the import system gives caffejax.pycaffe in this package's place."""

import sys

import caffejax.pycaffe

sys.modules[__name__] = caffejax.pycaffe
if __name__ == "caffe":
    caffejax.pycaffe.install()
