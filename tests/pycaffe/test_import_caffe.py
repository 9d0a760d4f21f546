"""`import caffe`: what it imports, what it leaves as it was, and names that come from a fork's files."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import caffejax.pycaffe as caffe
from caffejax.pycaffe import _fork_files, shim


def test_import_caffe_in_a_new_process(tmp_path: Path) -> None:
    """Caffe's `import caffe` loads PIL.Image and draws no random numbers; OpenMP's threads must not spin for long."""
    code = """
import sys
import numpy as np, PIL, scipy
np.random.seed(0)
state = np.random.get_state()
import caffe
assert not {"skimage", "scipy.ndimage", "cv2"} & sys.modules.keys()  # they are imported when they are first used
assert PIL.Image.open and scipy.ndimage.zoom
caffe.set_logging_disabled()
net = caffe.Net('''
    layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 1 dim: 1 dim: 4 dim: 4 } } }
    layer { name: "c" type: "Convolution" bottom: "x" top: "c"
      convolution_param { num_output: 1 kernel_size: 3 weight_filler { type: "xavier" } } }
''', caffe.TEST)
net.forward()
caffe.io, caffe.SGDSolver, caffe.Classifier, caffe.Detector
for old, new in zip(state, np.random.get_state()):
    assert np.array_equal(old, new)
"""
    environment = {**os.environ, "PYTHONPATH": str(shim.FOLDER), "OMP_DISPLAY_ENV": "verbose", "CAFFEJAX_CACHE": "off"}
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        environment.pop(name, None)
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert process.returncode == 0, process.stderr
    if "GOMP_SPINCOUNT" in process.stderr:  # absent where the kernels are not compiled
        assert "GOMP_SPINCOUNT = '2000'" in process.stderr


@pytest.fixture
def fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder `caffe` of a fork on Python's path."""
    folder = tmp_path / "python" / "caffe"
    folder.mkdir(parents=True)
    monkeypatch.syspath_prepend(str(folder.parent))
    monkeypatch.setattr(_fork_files, "_modules", {})
    yield folder
    for name in [name for name in sys.modules if "of_a_fork" in name]:
        del sys.modules[name]


def test_names_of_a_forks_files_are_there(fork: Path) -> None:
    (fork / "io.py").write_text(
        """
import numpy as np
from caffe.proto import caffe_pb2
from .net_spec import NetSpec
from .module_of_a_fork import double
def make_datum(label):
    def inner():
        pass
    return caffe_pb2.Datum(label=double(label))
def load_image(name):
    return "the fork's"
if True:
    LIMIT = 3
"""
    )
    (fork / "module_of_a_fork.py").write_text("def double(x):\n    return 2 * x\n")
    (fork / "__init__.py").write_text("from .pycaffe import Net\nfrom .module_of_a_fork import double\n")
    (fork / "draw.py").write_text("def draw_more():\n    return 1\n")
    assert caffe.io.make_datum(4).label == 8
    assert caffe.io.LIMIT == 3
    assert caffe.double(2) == caffe.pycaffe.double(2) == 4
    from caffejax.pycaffe import draw

    assert draw.draw_more() == 1
    assert caffe.io.load_image.__module__ == "caffejax.pycaffe.io"  # it is not replaced
    for name in ("inner", "nothing"):
        with pytest.raises(AttributeError, match=rf"no attribute '{name}'"):
            getattr(caffe.io, name)


def test_a_forks_file_that_cannot_be_used_is_named(fork: Path) -> None:
    (fork / "io.py").write_text("import package_that_is_absent\ndef f():\n    pass\n")
    (fork / "draw.py").write_text("def f():\n    print 'Python 2'\n")
    with pytest.raises(AttributeError, match=r"io\.py defines it, but fails.*package_that_is_absent"):
        caffe.io.f  # noqa: B018
    from caffejax.pycaffe import draw

    with pytest.raises(AttributeError, match=r"draw\.py is not Python 3 \(line 2.*2to3"):
        draw.f  # noqa: B018
    (fork / "io.py").write_text("raise ValueError('wrong')\n")
    with pytest.raises(AttributeError, match="no attribute 'g'"):  # the file does not define it, so it is not run
        caffe.io.g  # noqa: B018


def test_images_of_flow_are_mirrored_as_in_the_fork_for_activity_recognition() -> None:
    """Channel 0, the flow in x, is `scale` minus its value in the mirror image; the others are mirrored only."""
    image = np.arange(24, dtype=np.float32).reshape(2, 4, 3) / 24
    expected = np.stack([[row[3 - i] for i in range(4)] for row in image])
    np.testing.assert_array_equal(caffe.io.flip_image(image, 1, False), expected)
    expected[..., 0] = 2 - expected[..., 0]
    np.testing.assert_array_equal(caffe.io.flip_image(image, 2, True), expected)
    assert image[0, 0, 0] == 0
    plain = caffe.io.oversample([image, image + 1], (2, 2)).reshape(2, 10, 2, 2, 3)
    flow = caffe.io.oversample([image, image + 1], (2, 2), flow=True).reshape(2, 10, 2, 2, 3)
    np.testing.assert_array_equal(flow[:, :5], plain[:, :5])
    np.testing.assert_array_equal(flow[:, 5:, :, :, 1:], plain[:, 5:, :, :, 1:])
    np.testing.assert_array_equal(flow[:, 5:, :, :, 0], 1 - plain[:, 5:, :, :, 0])
    transformer = caffe.io.Transformer({"data": (1, 3, 2, 4)})
    transformer.set_transpose("data", (2, 0, 1))
    transformer.set_is_flow("data", True)
    assert transformer.is_flow == {"data": True}
    np.testing.assert_array_equal(transformer.preprocess("data", image), image.transpose(2, 0, 1))
    with pytest.raises(ValueError, match="not one of the net inputs"):
        transformer.set_is_flow("other", True)
