"""Nets, solvers and modes under the name of Caffe's compiled module: `from caffe._caffe import layer_type_list`."""

from .pycaffe import __getattr__ as __getattr__
