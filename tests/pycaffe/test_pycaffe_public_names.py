"""All public names of Caffe's Python interface exist."""

import pytest

import caffejax.pycaffe as caffe
from caffejax.core.layers.python import layer as _layer

from .conftest import DUMMY_DATA_NET, Write

MODULE = """
    Net Layer SGDSolver NesterovSolver AdaGradSolver RMSPropSolver AdaDeltaSolver AdamSolver get_solver NCCL Timer
    TRAIN TEST init_log log set_mode_cpu set_mode_gpu set_device set_random_seed layer_type_list solver_count
    set_solver_count solver_rank set_solver_rank set_multiprocess has_nccl Classifier Detector NetSpec to_proto layers
    params io proto pycaffe _caffe net_spec classifier detector __version__
"""
NET = """
    blobs params layers layer_dict inputs outputs bottom_names top_names blob_loss_weights forward backward forward_all
    forward_backward_all reshape copy_from share_with save save_hdf5 load_hdf5 clear_param_diffs set_input_arrays
    before_forward after_forward before_backward after_backward _forward _backward _batch _layer_names _blob_names
    _inputs _outputs _top_ids _bottom_ids _blob_loss_weights _blobs _set_input_arrays
"""
BLOB = "data diff shape num channels height width count reshape"
SOLVER = "net test_nets iter lr param step solve snapshot restore apply_update share_weights add_callback"
COMPILED = """
    Net Blob Layer Solver SGDSolver NesterovSolver AdaGradSolver RMSPropSolver AdaDeltaSolver AdamSolver get_solver NCCL
    Timer BlobVec RawBlobVec LayerVec StringVec IntVec DtypeVec NetVec BoolVec SolverParameter LayerParameter init_log
    log has_nccl set_mode_cpu set_mode_gpu set_random_seed set_device solver_count set_solver_count
    solver_rank set_solver_rank set_multiprocess layer_type_list __version__
"""
LAYER = "setup reshape blobs type param_str phase"


def find_missing_names(owner: object, names: str) -> list[str]:
    return [name for name in names.split() if not hasattr(owner, name)]


def test_the_module_has_caffes_names() -> None:
    assert not find_missing_names(caffe, MODULE)
    assert set(caffe.__all__) <= set(dir(caffe))


def test_nets_blobs_and_solvers(write: Write) -> None:
    solver = caffe.get_solver(
        write("solver.prototxt", f'net: "{write("net.prototxt", DUMMY_DATA_NET)}" base_lr: 1 lr_policy: "fixed"')
    )
    assert not find_missing_names(solver, SOLVER)
    assert not find_missing_names(solver.param, "max_iter display base_lr layer_wise_reduce")
    assert not find_missing_names(solver.net, NET)
    assert not find_missing_names(solver.net.blobs["conv"], BLOB)
    assert not find_missing_names(solver.net.layers[0], "type blobs")
    assert all(b is solver.net.blobs[n] for b, n in zip(solver.net._blobs, solver.net._blob_names, strict=True))


@pytest.mark.parametrize("base", [caffe.Layer, type("Mine", (caffe.Layer,), {})])
def test_layers(base: type[caffe.Layer]) -> None:
    assert not find_missing_names(base(), LAYER)
    assert not find_missing_names(_layer.BlobVec(), "add_blob append __len__ __getitem__ __iter__")


def test_types_have_the_names_and_bases_of_caffes_compiled_module(write: Write) -> None:
    from caffejax.pycaffe import _caffe

    assert not find_missing_names(_caffe, COMPILED)
    net = caffe.Net(DUMMY_DATA_NET, caffe.TEST)
    assert all(type(blobs) is _caffe.BlobVec for blobs in net.params.values())
    assert type(net.layers[1].blobs) is _caffe.BlobVec
    assert [layer.type for layer in net.layers if isinstance(layer, _caffe.Layer)][1:3] == [
        "Convolution",
        "InnerProduct",
    ]
    assert all(isinstance(blob, _caffe.Blob) for blob in net.blobs.values())
    assert isinstance(net._blobs, _caffe.RawBlobVec)
    assert issubclass(caffe.AdamSolver, _caffe.SGDSolver)
    blobs = _caffe.BlobVec()
    blobs.add_blob(2, 3)
    blobs.append(net.params["conv"][1])
    blobs.extend(net.params["ip"])
    assert [blob.shape for blob in blobs] == [(2, 3), (11,), (7, 891), (7,)]
    assert blobs[-1] in blobs


def test_unsupported_functions_raise(write: Write) -> None:
    assert not caffe.has_nccl()
    assert (caffe.solver_count(), caffe.solver_rank()) == (1, 0)
    caffe.set_multiprocess(True)
    caffe.set_solver_count(1)
    caffe.set_solver_rank(0)
    for call in (lambda: caffe.set_solver_count(2), caffe.NCCL.new_uid, lambda: caffe.NCCL(None, "")):
        with pytest.raises(
            NotImplementedError, match=r"caffejax train --gpu=all, or caffejax\.Solver\(solver, devices=N\)"
        ):
            call()


def test_the_modules_constants_types_timer_and_log_work(capsys: pytest.CaptureFixture[str]) -> None:
    assert (caffe.TRAIN, caffe.TEST) == (0, 1)
    assert {"Convolution", "SoftmaxWithLoss", "MemoryData"} <= set(caffe.layer_type_list())
    assert caffe.__version__ == "1.0.0"
    timer = caffe.Timer()
    timer.start()
    timer.stop()
    assert 0 <= timer.ms < 1e4
    caffe.init_log(0, True)
    caffe.log("hello")
    assert capsys.readouterr().err.rstrip().endswith("] hello")
