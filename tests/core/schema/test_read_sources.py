"""Nets and solvers from files, texts and messages, and errors of invalid files."""

import os
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caffejax.base.errors import SchemaError
from caffejax.core.schema import caffe_pb2, parse_binary, read_net, read_solver

NET = caffe_pb2.NetParameter(name="x")


def test_a_path_a_text_and_a_message_read_the_same(tmp_path):
    path = tmp_path / "net.prototxt"
    path.write_text('name: "x"\n')
    assert read_net(path) == read_net(str(path)) == read_net('name: "x"\n') == NET
    copy = read_net(NET)
    assert copy == NET
    assert copy is not NET
    assert read_solver("net_param { name: 'x' }").net_param == NET
    with pytest.raises(SchemaError, match="expected a SolverParameter, found a NetParameter"):
        read_solver(NET)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("layer { clip_param { min: 1 } type: 'Clip' name: 'bound' }", "1:20: layer 'bound' (Clip): "),
        ("layer { name: 'a' }\nlayer { name: 'b' type: 'Clip' clip_param {} }", "2:43: layer 'b' (Clip): "),
    ],
)
def test_required_fields_name_the_layer(text, message):
    with pytest.raises(SchemaError) as exc_info:
        read_net(text)
    assert f"<text>:{message}ClipParameter needs 'max'" in str(exc_info.value)


def test_required_fields_of_a_message_name_the_layer():
    net = caffe_pb2.NetParameter()
    net.layer.add(name="bound", type="Clip").clip_param.min = 1
    message = r"layer 'bound' \(Clip\): required fields are missing: .*layer\[0\]\.clip_param\.max"
    for read in (
        lambda: parse_binary(net.SerializePartialToString(), caffe_pb2.NetParameter, file="net.bin"),
        lambda: read_net(net),
        lambda: read_solver(caffe_pb2.SolverParameter(net_param=net)),
    ):
        with pytest.raises(SchemaError, match=message):
            read()


def test_byte_order_marks_and_empty_files_are_read(tmp_path):
    path = tmp_path / "net.prototxt"
    path.write_bytes(b"\xef\xbb\xbfname: 'x' # \xc4\xe3\xba\xc3, as editors write it\r\n")
    assert read_net(path) == NET
    path.write_bytes(b"")
    assert read_net(path) == caffe_pb2.NetParameter()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x7fELF\x00\x01", "this is a binary file"),
        (b"\x80\x81\x82", "1:1: expected the name of a field"),
        (b"layer { name: 'a'", "1:18: layer 'a': the text ends inside LayerParameter"),
    ],
)
def test_errors_of_invalid_files_name_the_position(tmp_path, content, message):
    path = tmp_path / "net.prototxt"
    path.write_bytes(content)
    with pytest.raises(SchemaError, match=f"^{path}:") as exc_info:
        read_net(path)
    assert message in str(exc_info.value)


def test_errors_of_unreadable_paths_say_why(tmp_path):
    for path, message in [
        (tmp_path / "none", "no such file"),
        (tmp_path, "a folder"),
        ("a\0b", "cannot be read"),
    ]:
        with pytest.raises(SchemaError, match=message):
            read_net(path)
    unreadable_path = tmp_path / "secret"
    unreadable_path.touch(0)
    if not os.access(unreadable_path, os.R_OK):  # root may read all
        with pytest.raises(SchemaError, match="cannot be read: Permission denied"):
            read_net(unreadable_path)


def test_problems_of_upgrades_name_the_file(tmp_path):
    path = tmp_path / "net.prototxt"
    path.write_text("layer {} layers {}")
    with pytest.raises(SchemaError, match=f"^{path}: the net has both"):
        read_net(path)


def test_binary_messages_are_parsed_and_missing_fields_named():
    net = caffe_pb2.NetParameter(name="x", input_dim=[1, 2])
    assert parse_binary(net.SerializeToString(), caffe_pb2.NetParameter) == net
    net.layer.add().clip_param.min = 1
    with pytest.raises(SchemaError, match=r"net\.bin: required fields are missing: layer\[0\]\.clip_param\.max"):
        parse_binary(net.SerializePartialToString(), caffe_pb2.NetParameter, file="net.bin")


@given(st.binary(max_size=60))
def test_random_bytes_are_parsed_or_rejected(data):
    with suppress(SchemaError):
        assert isinstance(parse_binary(data, caffe_pb2.NetParameter), caffe_pb2.NetParameter)


def test_texts_above_the_size_limit_are_rejected(tmp_path, monkeypatch):
    monkeypatch.setattr("caffejax.core.schema.load._MAX_TEXT_SIZE", 1 << 20)
    (tmp_path / "net.prototxt").write_text('name: "a"' + " " * (1 << 20))
    with pytest.raises(SchemaError, match=r"net.prototxt: is larger than 1 MiB, the limit for text files"):
        read_net(tmp_path / "net.prototxt")
