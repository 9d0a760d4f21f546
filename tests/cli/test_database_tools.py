"""The tools that make and read databases: the same bytes as Caffe's."""

from pathlib import Path

import cv2
import jax
import numpy as np
import pytest

from caffejax.base.databases import LevelDb, Lmdb, write_lmdb
from caffejax.cli import main
from caffejax.core.checkpoints.load_save import save_weights
from caffejax.core.data.image_decoding import COLOR, read_datum
from caffejax.core.program.net import Net
from caffejax.core.schema import caffe_pb2

GOLDEN = Path(__file__).parents[1] / "golden" / "data"

CAFFE_DATABASES = {
    "lmdb_raw": ["", "list.txt"],
    "lmdb_gray": ["--gray", "list.txt"],
    "lmdb_encoded": ["--encoded --encode_type=png", "list_color.txt"],
    "lmdb_encoded_gray": ["--encoded --encode_type=png --gray", "list.txt"],
    "lmdb_encoded_mixed": ["--encoded --encode_type=png", "list.txt"],
    "lmdb_var_encoded": ["-encoded", "list_var.txt"],
    "leveldb_compacted": ["-backend leveldb", "list.txt"],
    "leveldb_snappy": ["--backend=leveldb", "list_grey.txt"],
}


@pytest.fixture(autouse=True)
def use_golden_folder(monkeypatch):
    monkeypatch.chdir(GOLDEN)


def run_with_error(capsys, *arguments, code=1):
    assert main(arguments) == code
    return "\n".join(line for line in capsys.readouterr().err.splitlines() if line.startswith("caffejax:"))


@pytest.mark.parametrize("name", CAFFE_DATABASES)
def test_convert_imageset_makes_caffes_bytes(name, tmp_path):
    flags, images = CAFFE_DATABASES[name]
    assert main(["convert_imageset", *flags.split(), "./", images, str(tmp_path / "db")]) == 0
    reader = LevelDb if name.startswith("leveldb") else Lmdb
    records, expected = list(reader(tmp_path / "db")), list(reader(GOLDEN / name))
    assert records == expected


def test_resized_images_equal_caffes(tmp_path):
    size = ["--resize_height=24", "--resize_width=28"]
    assert main(["convert_imageset", *size, "images/", "list_rel.txt", str(tmp_path / "db")]) == 0
    assert list(Lmdb(tmp_path / "db")) == list(Lmdb(GOLDEN / "lmdb_resized"))


@pytest.mark.parametrize(
    "flags",
    [
        ["--encode_type=png"],
        ["--encoded", "--encode_type", "PNG"],
        ["--encoded", "--resize_height=32", "--resize_width=40"],
    ],
)
def test_images_are_encoded_again(tmp_path, flags):
    assert main(["convert_imageset", *flags, "", "list.txt", str(tmp_path / "db")]) == 0
    for (_, value), name in zip(Lmdb(tmp_path / "db"), Path("list.txt").read_text().splitlines(), strict=True):
        datum = caffe_pb2.Datum.FromString(value)
        assert datum.encoded
        assert not datum.HasField("channels")
        image, label = read_datum(value, COLOR)
        path, _, expected = name.rpartition(" ")
        assert label == int(expected)
        if path.endswith("png"):
            np.testing.assert_array_equal(image, cv2.imread(path).transpose(2, 0, 1))


def test_the_seed_determines_the_order(tmp_path):
    databases = []
    for i, flags in enumerate(["--shuffle", "--shuffle=true", "--shuffle --seed 1", "--noshuffle", "--shuffle=false"]):
        assert main(["convert_imageset", *flags.split(), "./", "list.txt", str(tmp_path / str(i))]) == 0
        databases.append(list(Lmdb(tmp_path / str(i))))
    assert databases[0] == databases[1] != databases[2]
    assert databases[3] == databases[4] == list(Lmdb(GOLDEN / "lmdb_raw"))
    for records in databases:
        assert [int(key[:8]) for key, _ in records] == list(range(24))
        assert sorted(key[9:] for key, _ in records) == sorted(key[9:] for key, _ in databases[3])
        assert sorted(value for _, value in records) == sorted(value for _, value in databases[3])


def test_a_bad_image_is_fatal_unless_errors_are_skipped(tmp_path, capsys):
    (tmp_path / "bad.png").write_bytes(b"no image")
    cv2.imwrite(str(tmp_path / "good.png"), np.zeros((2, 3, 3), np.uint8))
    (tmp_path / "list").write_text("good.png 1\nbad.png 2\ngood.png 3\n")
    arguments = ["convert_imageset", f"{tmp_path}/", str(tmp_path / "list"), str(tmp_path / "db")]
    assert "bad.png: its image of 8 bytes cannot be decoded" in run_with_error(capsys, *arguments)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.png", "good.png", "list"]
    (tmp_path / "list").write_text("good.png 1\nbad.png 2\nnone.png 4\ngood.png 3\n")
    message = run_with_error(capsys, *arguments)
    assert "list:3: there is no image" in message
    assert main([*arguments, "--skip_errors"]) == 0
    assert "bad.png: its image of 8 bytes cannot be decoded" in capsys.readouterr().err
    assert [key for key, _ in Lmdb(tmp_path / "db")] == [b"00000000_good.png", b"00000003_good.png"]
    assert "db: already exists" in run_with_error(capsys, *arguments, "--skip_errors")


def test_a_root_folder_without_a_slash_is_one_error(tmp_path, capsys):
    (tmp_path / "images").mkdir()
    for name in ("a.png", "b.png"):
        cv2.imwrite(str(tmp_path / "images" / name), np.zeros((2, 3, 3), np.uint8))
    (tmp_path / "list").write_text("a.png 1\nb.png 2\n")
    root, other_arguments = tmp_path / "images", [str(tmp_path / "list"), str(tmp_path / "db")]
    message = run_with_error(capsys, "convert_imageset", str(root), *other_arguments)
    assert f"list:1: there is no image '{root}a.png': the root folder must end with a slash: '{root}/'" in message
    assert "b.png" not in message
    (tmp_path / "list").write_text("a.png 1\nnone.png 2\nnone2.png 3\n")
    message = run_with_error(capsys, "convert_imageset", f"{root}/", *other_arguments)
    assert "slash" not in message
    assert message.count("there is no image") == 2
    (tmp_path / "list").write_text("/a.png 1\n")  # joined without a separator, as in Caffe
    assert main(["convert_imageset", str(root), *other_arguments]) == 0


def test_check_size_refuses_images_of_different_sizes(tmp_path, capsys):
    for flags, code in ([], 0), (["--check_size"], 1):
        database = str(tmp_path / f"db{code}")
        assert main(["convert_imageset", "--encoded", *flags, "./", "list_var.txt", database]) == code
    assert "has shape (3, " in capsys.readouterr().err
    assert not (tmp_path / "db1").exists()


def test_an_unknown_encoding_is_refused(tmp_path, capsys):
    message = run_with_error(capsys, "convert_imageset", "--encode_type=nope", "./", "list.txt", str(tmp_path / "db"))
    assert "cannot be stored as 'nope'" in message
    assert "im_00.png" in message


@pytest.mark.parametrize(
    ("database", "mean"), [("lmdb_raw", "mean"), ("lmdb_encoded", "mean_encoded"), ("leveldb_raw", "mean")]
)
def test_compute_image_mean_makes_caffes_bytes(database, mean, tmp_path, capsys):
    backend = database.split("_")[0]
    assert main(["compute_image_mean", f"--backend={backend}", database, str(tmp_path / "mean")]) == 0
    assert (tmp_path / "mean").read_bytes() == (GOLDEN / f"{mean}.binaryproto").read_bytes()
    log = capsys.readouterr().err
    assert "Number of channels: 3" in log
    if mean == "mean":
        for line in ("mean_value channel [0]: 78.483", "[1]: 96.8747", "[2]: 138.773"):
            assert f"{line}\n" in log


def test_the_mean_needs_one_shape_and_good_images(tmp_path, capsys):
    assert "record '00000001_images/var/v1.png' is 3x" in run_with_error(
        capsys, "compute_image_mean", "lmdb_var_encoded"
    )
    valid_datum = caffe_pb2.Datum(channels=1, height=1, width=2, data=b"\1\3").SerializeToString()
    write_lmdb(tmp_path / "db", [(b"a", valid_datum), (b"b", b"\xff"), (b"c", valid_datum)])
    assert "db: record 'b' is not a Datum" in run_with_error(capsys, "compute_image_mean", str(tmp_path / "db"))
    assert main(["compute_image_mean", "--skip_errors", str(tmp_path / "db")]) == 0
    assert "mean_value channel [0]: 2\n" in capsys.readouterr().err
    assert "no such folder" in run_with_error(capsys, "compute_image_mean", str(tmp_path / "none"))


NET = """
layer { name: "d" type: "Data" top: "data" top: "label" transform_param { scale: 0.01 }
  data_param { source: "lmdb_raw" batch_size: 10 backend: LMDB } }
layer { name: "pool" type: "Pooling" bottom: "data" top: "pool" pooling_param { pool: AVE kernel_size: 8 stride: 8 } }
layer { name: "ip" type: "InnerProduct" bottom: "pool" top: "ip"
  inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "ip" top: "ip" }
"""


@pytest.fixture
def net_and_features(tmp_path):
    """Return a net, its weights, and its blobs over the first three batches."""
    (tmp_path / "net.prototxt").write_text(NET)
    net = Net(NET, "TEST")
    variables = net.init(jax.random.key(5))
    save_weights(tmp_path / "net.caffemodel", net.graph, variables)
    source = net.sources()["d"]
    expected = {"pool": [], "ip": [], "label": []}
    for _ in range(3):
        images, labels = next(source)
        blobs, _ = net.apply(*variables, {"data": images, "label": labels}, blobs=tuple(expected))
        for name, rows in expected.items():
            rows.append(np.asarray(blobs[name]))
    source.close()
    return tmp_path, {name: np.concatenate(rows) for name, rows in expected.items()}


@pytest.mark.parametrize("backend", ["lmdb", "leveldb", "npz"])
def test_extract_features_stores_the_blobs(net_and_features, backend):
    folder, expected = net_and_features
    output_paths = [folder / f"{name}_{backend}" for name in expected]
    net_arguments = [str(folder / "net.caffemodel"), str(folder / "net.prototxt")]
    blobs, databases = ",".join(expected), ",".join(map(str, output_paths))
    assert main(["extract_features", *net_arguments, blobs, databases, "3", backend, "CPU", "DEVICE_ID=0"]) == 0
    for (name, rows), output_path in zip(expected.items(), output_paths, strict=True):
        if backend == "npz":
            with np.load(output_path) as content:
                features = content[name]
        else:
            records = list((LevelDb if backend == "leveldb" else Lmdb)(output_path))
            assert [key for key, _ in records] == [b"%010d" % i for i in range(30)]
            datums = [caffe_pb2.Datum.FromString(value) for _, value in records]
            shape = (*rows.shape[1:], 1, 1, 1)[:3]
            assert {(d.channels, d.height, d.width) for d in datums} == {shape}
            features = np.array([d.float_data for d in datums], np.float32).reshape(rows.shape)
        np.testing.assert_allclose(features, rows, rtol=1e-5, atol=1e-6)  # frozen, the net adds up in another order


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ip,pool", "a", "1", "lmdb"), "2 blobs need 2 databases, but the number of databases is 1"),
        (("ip,pool", "a,a", "1", "lmdb"), "the database 'a' is named twice"),
        (("ip,poo", "a,b", "1", "lmdb"), "no blob 'poo' in the net; did you mean 'pool'?"),
        (("ip", "net.prototxt", "1", "leveldb"), "net.prototxt: already exists"),
        (("ip", "a", "1", "lmdb", "GPU", "7"), "JAX sees no gpu device here"),
    ],
)
def test_extract_features_refuses_invalid_arguments(net_and_features, capsys, monkeypatch, arguments, message):
    folder, _ = net_and_features
    (folder / "lmdb_raw").symlink_to(GOLDEN / "lmdb_raw")
    monkeypatch.chdir(folder)
    files_before = sorted(p.name for p in folder.iterdir())
    assert message in run_with_error(capsys, "extract_features", "net.caffemodel", "net.prototxt", *arguments)
    assert sorted(p.name for p in folder.iterdir()) == files_before


def test_an_error_during_extraction_leaves_no_database(net_and_features, capsys):
    folder, _ = net_and_features
    datums = [caffe_pb2.Datum(channels=3, height=32, width=40, data=bytes(3840)).SerializeToString()] * 15
    write_lmdb(folder / "cut", [*((b"%02d" % i, datum) for i, datum in enumerate(datums)), (b"99", b"\xff")])
    (folder / "net.prototxt").write_text(NET.replace("lmdb_raw", str(folder / "cut")))
    files_before = sorted(p.name for p in folder.iterdir())
    net_arguments = [str(folder / "net.caffemodel"), str(folder / "net.prototxt")]
    message = run_with_error(
        capsys, "extract_features", *net_arguments, "ip,pool", f"{folder}/a,{folder}/b", "5", "leveldb"
    )
    assert "record '99' is not a Datum" in message
    assert sorted(p.name for p in folder.iterdir()) == files_before
