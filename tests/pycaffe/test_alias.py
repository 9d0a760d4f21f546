"""`import caffe` after `install()`, in separate processes because it changes the process."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest


def run_python(code: str, cwd: Path) -> None:
    process = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, cwd=cwd)
    assert process.returncode == 0, process.stderr


def test_scripts_can_import_caffe(tmp_path: Path) -> None:
    code = """
import importlib, sys
import caffejax.pycaffe as real
real.install()
real.install()
import caffe
assert caffe is real and sys.modules["caffe"] is sys.modules["caffejax.pycaffe"]
assert "caffejax.pycaffe.draw" not in sys.modules  # modules are imported when asked for
import caffe.io, caffe.draw, caffe.net_spec, caffe.coord_map, caffe.pycaffe
import caffe.proto.caffe_pb2 as pb
from caffe.proto import caffe_pb2
from caffe import layers as L, params as P
from caffe.net_spec import assign_proto, to_proto, Top, NetSpec, Function
from caffe.coord_map import crop
from caffe.pycaffe import Blob
from caffe._caffe import Net as CompiledNet, layer_type_list
assert CompiledNet is caffe.Net and "ReLU" in layer_type_list()
for name in ("io", "draw", "net_spec", "coord_map", "proto"):
    assert sys.modules[f"caffe.{name}"] is sys.modules[f"caffejax.pycaffe.{name}"], name
    assert getattr(caffe, name) is sys.modules[f"caffe.{name}"], name
    assert getattr(caffe, name).__name__ == getattr(caffe, name).__spec__.name == f"caffejax.pycaffe.{name}"
assert pb is caffe_pb2 is real.proto.caffe_pb2
assert NetSpec is caffe.NetSpec and Blob is real.Blob
assert caffe.TRAIN == pb.TRAIN == 0 and caffe.TEST == 1
n = caffe.NetSpec()
n.data = L.Input(shape=dict(dim=[1, 3, 4, 4]))
n.pool = L.Pooling(n.data, pool=P.Pooling.MAX, global_pooling=True)
assert isinstance(n.to_proto(), pb.NetParameter)
for absent in ("caffe.nonsense", "caffe.io.nonsense"):
    try:
        importlib.import_module(absent)
    except ModuleNotFoundError as error:
        assert absent in str(error), error
    else:
        raise AssertionError(absent)
assert importlib.reload(caffe.io) is caffe.io
import pickle
assert pickle.loads(pickle.dumps(caffe.io.Transformer)) is caffe.io.Transformer
"""
    run_python(code, tmp_path)


def test_replacing_an_imported_caffe_raises_an_error(tmp_path: Path) -> None:
    (tmp_path / "caffe").mkdir()
    (tmp_path / "caffe" / "__init__.py").write_text("here = True")
    code = """
import caffe
import caffejax.pycaffe
from caffejax.base.errors import CaffejaxError
try:
    caffejax.pycaffe.install()
except CaffejaxError as error:
    assert "a different package 'caffe' has already been imported" in str(error) and "__init__.py" in str(error), error
else:
    raise AssertionError("replaced")
assert caffe.here
"""
    run_python(code, tmp_path)


@pytest.mark.parametrize("is_aliased", [False, True])
def test_an_installed_caffe_is_found_only_without_install(tmp_path: Path, is_aliased: bool) -> None:
    (tmp_path / "caffe.py").write_text("here = True")
    call = "caffejax.pycaffe.install(); " if is_aliased else ""
    run_python(f"import caffejax.pycaffe; {call}import caffe; assert hasattr(caffe, 'here') != {is_aliased}", tmp_path)


NAMES = {
    "net_spec": "Function Layers NetSpec Parameters Top assign_proto layers param_name_dict params to_proto",
    "coord_map": "AxisMismatchException PASS_THROUGH_LAYERS UndefinedMapException compose conv_params coord_map "
    "coord_map_from_to crop crop_params inverse",
    "io": "Transformer array_to_blobproto array_to_datum arraylist_to_blobprotovector_str blobproto_to_array "
    "blobprotovector_str_to_arraylist caffe_pb2 datum_to_array load_image oversample resize_image",
    "draw": "BLOB_STYLE LAYER_STYLE_DEFAULT NEURON_LAYER_STYLE choose_color_by_layertype draw_net draw_net_to_file "
    "get_edge_label get_layer_label get_layer_lr_mult get_pooling_types_dict get_pydot_graph",
    "proto": "caffe_pb2",
    "classifier": "Classifier",
    "detector": "Detector",
}


@pytest.mark.parametrize("module", NAMES)
def test_modules_have_caffes_names(module: str) -> None:
    result = vars(import_module(f"caffejax.pycaffe.{module}"))
    assert not [name for name in NAMES[module].split() if name not in result]
