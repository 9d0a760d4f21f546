"""convert_annoset: AnnotatedData reads its databases; invalid input is refused."""

import json

import cv2
import numpy as np
import pytest

from caffejax.base.databases import LevelDb, Lmdb
from caffejax.cli import main
from caffejax.core.data.image_decoding import decode_datum
from caffejax.core.schema.caffe_pb2 import AnnotatedDatum
from caffejax.forks.detection.data.annotated_datum import parse_annotated_datum, read_annotations

LABEL_MAP = """
item { name: "none_of_the_above" label: 0 display_name: "background" }
item { name: "cat" label: 1 display_name: "cat" }
item { name: "dog" label: 2 display_name: "dog" }
"""
XML = """<annotation><size><width>40</width><height>20</height><depth>3</depth></size>
<object><name>dog</name><difficult>1</difficult><bndbox><xmin>10</xmin><ymin>5</ymin><xmax>20</xmax><ymax>15</ymax></bndbox></object>
<object><name>cat</name><bndbox><xmin>0</xmin><ymin>0</ymin><xmax>40</xmax><ymax>20</ymax></bndbox></object>
<object><name>dog</name><bndbox><ymax>20</ymax><xmin>2</xmin><ymin>4</ymin><xmax>4.5</xmax></bndbox>
<difficult>0</difficult><part><name>head</name><bndbox/></part></object></annotation>"""
OBJECTS = [
    [2, 0, 0.25, 0.25, 0.5, 0.75, 1],
    [1, 0, 0, 0, 1, 1, 0],
    [2, 1, 0.05, 0.2, 0.1125, 1, 0],
]
GROUPED_OBJECTS = [OBJECTS[0], OBJECTS[2], OBJECTS[1]]  # one group for each class
JSON = {
    "image": {"height": 20, "width": 40},
    "annotation": [
        {"category_id": 2, "bbox": [10, 5, 10, 10], "iscrowd": 1},
        {"category_id": 1, "bbox": [0, 0, 40, 20]},
        {"category_id": 2, "bbox": [2, 4, 2.5, 16], "iscrowd": 0},
    ],
}
TXT = "2 10 5 20 15\n\n1 0 0 40 20\n2 2 4 4.5 20\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two images of 40 x 20, each with annotations of all kinds, and lists."""
    monkeypatch.chdir(tmp_path)
    for i in range(2):
        image = np.random.default_rng(i).integers(0, 256, (20, 40, 3), np.uint8)
        cv2.imwrite(f"im {i}.png", image)
        (tmp_path / f"{i}.xml").write_text(XML)
        (tmp_path / f"{i}.json").write_text(json.dumps(JSON))
        (tmp_path / f"{i}.txt").write_text(TXT)
    for annotation_format in "xml", "json", "txt":
        (tmp_path / f"{annotation_format}.list").write_text(
            "".join(f"im {i}.png {i}.{annotation_format}\n" for i in range(2))
        )
    (tmp_path / "names").write_text(LABEL_MAP)
    (tmp_path / "numbers").write_text('item { name: "1" label: 1 } item { name: "2" label: 2 }')
    return tmp_path


def run_convert_annoset(*flags, name="xml.list"):
    return main(["convert_annoset", *flags, "./", name, "db"])


def run_with_error(capsys, *flags, name="xml.list"):
    assert run_convert_annoset(*flags, name=name) == 1
    return capsys.readouterr().err


DETECTION_FLAGS = ("--anno_type=detection", "--label_map_file=names")


@pytest.mark.parametrize(
    ("label_type", "label_map_flags"),
    [("xml", ["--label_map_file=names"]), ("json", ["--label_map_file=numbers"]), ("json", []), ("txt", [])],
)
def test_all_annotation_formats_give_equal_records(folder, label_type, label_map_flags):
    assert (
        run_convert_annoset(
            "--anno_type=detection",
            f"--label_type={label_type}",
            *label_map_flags,
            "-encoded",
            name=f"{label_type}.list",
        )
        == 0
    )
    records = list(Lmdb("db"))
    assert [key for key, _ in records] == [b"00000000_im 0.png", b"00000001_im 1.png"]
    for i, (_, value) in enumerate(records):
        message = parse_annotated_datum(value)
        columns = np.s_[:, :6] if label_type == "txt" else np.s_[:]  # text says nothing of difficult objects
        np.testing.assert_allclose(
            read_annotations(message).objects[columns], np.array(GROUPED_OBJECTS)[columns], rtol=1e-6
        )
        assert message.datum.data == (folder / f"im {i}.png").read_bytes()
        assert (message.datum.channels, message.datum.height, message.datum.width) == (3, 20, 40)
        assert message.datum.label == -1


@pytest.mark.parametrize(
    ("flags", "shape"),
    [
        (["--resize_height=10", "--resize_width=8"], (3, 10, 8)),
        (["--min_dim=30"], (3, 30, 60)),
        (["--max_dim=20"], (3, 10, 20)),
        (["--min_dim=30", "--max_dim=50"], (3, 25, 50)),
        (["--min_dim=10", "--max_dim=50", "--gray"], (1, 20, 40)),
    ],
)
@pytest.mark.parametrize("encoding", [[], ["--encode_type=png"]])
def test_images_are_resized_by_the_flags(folder, flags, shape, encoding):
    assert (
        run_convert_annoset(*DETECTION_FLAGS, *flags, *encoding, "--backend=leveldb", "--shuffle", "--check_size") == 0
    )
    for _, value in LevelDb("db"):
        message = parse_annotated_datum(value)
        assert decode_datum(message.datum).shape == shape
        assert (message.datum.channels, message.datum.height, message.datum.width) == shape
        assert message.datum.encoded == bool(encoding)
        np.testing.assert_allclose(read_annotations(message).objects, GROUPED_OBJECTS, rtol=1e-6)


def test_classification_stores_labels(folder):
    (folder / "labels").write_text("im 0.png 3\nim 1.png 5\n")
    assert run_convert_annoset(name="labels") == 0
    result = [read_annotations(parse_annotated_datum(value)) for _, value in Lmdb("db")]
    assert [(annotations.label, annotations.type, len(annotations.objects)) for annotations in result] == [
        (3, None, 0),
        (5, None, 0),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('<!DOCTYPE a [<!ENTITY b "c">]><annotation>&b;</annotation>', "has a DOCTYPE, which is refused"),
        ("<annotation>", "is not XML: no element found"),
        (XML.replace("cat", "cow"), "class 'cow' is not in the label map"),
        (XML.replace("<name>cat</name>", ""), "object 1 has no name"),
        (XML.replace("<xmin>10</xmin>", ""), "object 0 has 'None' where a number should be"),
        ('<?xml version="1.0" encoding="gbk"?><a/>', "is not XML: multi-byte encodings are not supported"),
        (XML.replace("<xmin>10</xmin>", "<xmin>1e300</xmin>"), "object 0 has '1e300' where a number should be"),
        (XML.replace("<xmin>10</xmin>", "<xmin>nan</xmin>"), "object 0 has 'nan' where a number should be"),
        (XML.replace("<width>40", "<width>0"), "states that the image is 20 x 0"),
    ],
)
def test_invalid_xml_is_reported_and_no_database_remains(folder, capsys, content, message):
    (folder / "1.xml").write_text(content)
    error = run_with_error(capsys, *DETECTION_FLAGS)
    assert f"1.xml: {message}" in error
    assert not (folder / "db").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "must have the form"),
        ('{"annotation": [{"category_id": "1"}]}', "must have the form"),
        ('{"annotation": [{"category_id": 1, "bbox": [1, 2]}]}', "annotation 0 has a box of 2 numbers, not 4"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_invalid_json_is_reported(folder, capsys, content, message):
    (folder / "1.json").write_text(content)
    assert f"1.json: {message}" in run_with_error(
        capsys, "--anno_type=detection", "--label_type=json", name="json.list"
    )


def test_invalid_lists_and_flags_are_reported(folder, capsys):
    (folder / "1.txt").write_text("1 2 3\n")
    (folder / "twice").write_text(LABEL_MAP.replace("dog", "cat"))
    (folder / "lonely.list").write_text("im0.png\n")
    (folder / "missing.list").write_text("im 0.png nowhere.xml\n")
    txt_flags = ("--anno_type=detection", "--label_type=txt")
    assert "1.txt: line 1 is '1 2 3', not 'label xmin ymin xmax ymax'" in run_with_error(
        capsys, *txt_flags, name="txt.list"
    )
    (folder / "1.txt").write_text("cat 1 2 3 4\n")
    assert "1.txt: class 'cat' is not a number" in run_with_error(capsys, *txt_flags, name="txt.list")
    assert "--label_map_file is required" in run_with_error(capsys, "--anno_type=detection")
    assert "name 'cat' occurs twice" in run_with_error(capsys, "--anno_type=detection", "--label_map_file=twice")
    assert "nowhere: the label map cannot be read" in run_with_error(
        capsys, DETECTION_FLAGS[0], "--label_map_file=nowhere"
    )
    assert "lonely.list:1: 'im0.png' is not two paths" in run_with_error(capsys, *DETECTION_FLAGS, name="lonely.list")
    assert "missing.list:1: there is no annotation './nowhere.xml'" in run_with_error(
        capsys, *DETECTION_FLAGS, name="missing.list"
    )
    assert "cannot be combined with" in run_with_error(capsys, *DETECTION_FLAGS, "--min_dim=3", "--resize_height=3")


BROKEN = {
    "exchanged.xml": (
        "<annotation><size><width>20</width><height>40</height></size>"
        "<object><name>cat</name><bndbox><xmin>10</xmin><ymin>5</ymin><xmax>36</xmax><ymax>15</ymax></bndbox></object>"
        "<object><name>dog</name><bndbox><xmin>9</xmin><ymin>5</ymin><xmax>3</xmax><ymax>15</ymax></bndbox></object>"
        "</annotation>",
        ["40 x 20 (HxW), but it is 20 x 40: height and width are exchanged", "1 of 2 boxes beyond", "1 of 2 boxes inv"],
    ),
    "no_size.xml": (
        "<annotation><object><name>cat</name>"
        "<bndbox><xmin>-1</xmin><ymin>5</ymin><xmax>40</xmax><ymax>20</ymax></bndbox></object></annotation>",
        ["1 of 1 boxes beyond the image: (-1, 5, 40, 20)"],
    ),
    "good.xml": (XML, []),
    "other.json": (
        json.dumps(
            {"image": {"height": 21, "width": 40}, "annotation": [{"category_id": "cat", "bbox": [1, 2, 0, 3]}]}
        ),
        ["states that the image is 21 x 40 (HxW), but it is 20 x 40;", "1 of 1 boxes inverted or empty: (1, 2, 1, 5)"],
    ),
    "beyond.txt": ("1 10 5 20 15\n1 10 5 41 15\n1 1 5 20 21\n", ["2 of 3 boxes beyond the image: (10, 5, 41, 15)"]),
}


@pytest.mark.parametrize("label_type", ["xml", "json", "txt"])
def test_broken_boxes_and_sizes_are_named_once_for_each_file_and_counted(folder, capsys, label_type):
    names = [name for name in BROKEN if name.endswith(label_type)]
    for name in names:
        (folder / name).write_text(BROKEN[name][0])
    (folder / "list").write_text("".join(f"im 0.png {name}\n" for name in names))
    flags = () if label_type == "txt" else ("--label_map_file=names",)
    assert run_convert_annoset("--anno_type=detection", f"--label_type={label_type}", *flags, name="list") == 0
    warnings = [line.split("] ", 1)[1] for line in capsys.readouterr().err.splitlines() if line.startswith("W")]
    for name in names:
        lines = [line for line in warnings if name in line]
        assert len(lines) == (1 if BROKEN[name][1] else 0), lines
        for text in BROKEN[name][1]:
            assert text in lines[0]
    num_bad = sum(bool(BROKEN[name][1]) for name in names)
    assert len(warnings) == num_bad + 1
    assert f"Of {len(names)} annotation files, " in warnings[-1]
    counts = {
        "xml": ["1 with a size that contradicts the image", "2 with boxes beyond", "1 with inverted"],
        "json": ["1 with a size", "1 with inverted or empty boxes"],
        "txt": ["1 with boxes beyond the image"],
    }
    for text in counts[label_type]:
        assert text in warnings[-1]


def test_right_annotations_give_no_warning(folder, capsys):
    assert run_convert_annoset(*DETECTION_FLAGS) == 0
    assert "annotation files" not in capsys.readouterr().err


def test_segmentations_are_stored_beside_boxes(folder):
    """The label images' files are stored as they are, whatever the size of the images."""
    for i in range(2):
        cv2.imwrite(f"seg{i}.png", np.random.default_rng(i).integers(0, 34, (20, 40), np.uint8))
    (folder / "seg.list").write_text("".join(f"im {i}.png {i}.xml seg{i}.png\n" for i in range(2)))
    flags = "--anno_type=detection_with_segmentation", "--label_map_file=names", "--encoded", "--max_dim=20"
    assert run_convert_annoset(*flags, name="seg.list") == 0
    for i, (key, value) in enumerate(Lmdb("db")):
        message = parse_annotated_datum(value)
        assert key == b"%08d_im %d.png" % (i, i)
        assert message.type == AnnotatedDatum.BBOXandSeg
        assert message.datum.seg_label == (folder / f"seg{i}.png").read_bytes()
        np.testing.assert_allclose(read_annotations(message).objects, GROUPED_OBJECTS, rtol=1e-6)


LANES = {"h_samples": [5, 10, 15], "lanes": [[4, 8, 12], [-2, 30, 36]], "raw_file": "x.jpg"}


def test_lanes_are_stored_as_nodes(folder):
    for i in range(2):
        (folder / f"{i}.json").write_text(json.dumps(LANES))
    assert run_convert_annoset("--anno_type=lane_detection", "--encoded", name="json.list") == 0
    for _, value in Lmdb("db"):
        annotations = read_annotations(parse_annotated_datum(value))
        assert annotations.type == AnnotatedDatum.LANE
        expected = [[[x / 40, y / 20] for x, y in zip(lane, [5, 10, 15], strict=True)] for lane in LANES["lanes"]]
        np.testing.assert_allclose(annotations.lanes, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "must have the form"),
        (json.dumps({"h_samples": [1]}), "must have the form"),
        (json.dumps({**LANES, "lanes": [[1]]}), "lane 0 has 1 numbers, but there are 3 h_samples"),
        (json.dumps({**LANES, "h_samples": ["a", 2, 3]}), "h_samples has 'a' where a number should be"),
        (json.dumps({**LANES, "image": {"height": 0}}), "states that the image is 0 x 40"),
    ],
)
def test_invalid_lanes_are_reported(folder, capsys, content, message):
    (folder / "0.json").write_text(json.dumps(LANES))
    (folder / "1.json").write_text(content)
    assert f"1.json: {message}" in run_with_error(capsys, "--anno_type=lane_detection", name="json.list")


def test_invalid_segmentations_are_reported(folder, capsys):
    flags = "--anno_type=detection_with_segmentation", "--label_map_file=names"
    (folder / "short.list").write_text("im0.png 0.xml\n")
    (folder / "triples.list").write_text("im 0.png 0.xml seg.png\n")
    assert "is not three paths separated by a space" in run_with_error(capsys, *flags, name="short.list")
    assert "there is no label image './seg.png'" in run_with_error(capsys, *flags, name="triples.list")
    (folder / "seg.png").write_bytes(b"junk")
    assert "seg.png: its image of 4 bytes cannot be decoded" in run_with_error(capsys, *flags, name="triples.list")
