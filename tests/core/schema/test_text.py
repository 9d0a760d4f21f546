"""The prototxt parser: its grammar, compared with Google's parser, and its messages about mistakes."""

import re
import zipfile

import pytest
from google.protobuf import descriptor_pb2, text_format
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from caffejax.base.errors import SchemaError
from caffejax.core.schema import caffe_pb2, format_text, parse_text
from caffejax.core.schema.text import parse_valid_fields

LAYER = caffe_pb2.LayerParameter


def parse_with_google(text: str, message_class: type[Message]) -> Message | None:
    """Return the message that Google's parser reads, or None if it rejects the text."""
    try:
        return text_format.Parse(text, message_class())
    except text_format.ParseError:
        return None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# only a comment",
        "loss_weight: [1, 2.5e-3f, .5, 1., inf, -inf, -1F, 1e40, -1e400]",
        'top: "a" \'b\' "\\n\\x41\\101\\u00e9\\U0001F600\\a\\"\\\'"',
        'top: ["a" "b", \'c\'] top: [ ]',
        "param [ { lr_mult: 1 }, < lr_mult: 2 > ] param: [{}] param: <>",
        "phase: 1",
        "phase: TRAIN",
        "propagate_down: [t, f, True, False, 1, 0, true, false]",
        'name: "a"; type: "b",',
        "dummy_data_param { num: 4294967295 num: 0xFFFFFFFF num: 017 }",
        "softmax_param: { axis: -0x80000000 }",
        "name: 'ünïcode' # a comment; { \n#another\n type : \"b\"",
    ],
)
def test_grammar_as_google_reads_it(text):
    expected = text_format.Parse(text, LAYER())
    assert parse_text(text, LAYER).SerializeToString() == expected.SerializeToString()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('name: "\\?"', "?"),
        ('name: "\\377"', "ÿ"),
        ('name: "\\q"', None),
    ],  # where Google's Python differs from C++
)
def test_escapes_as_in_cpp(text, name):
    if name is None:
        with pytest.raises(SchemaError):
            parse_text(text, LAYER)
    else:
        assert parse_text(text, LAYER).name == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nmae: 'x'", "1:1: LayerParameter has no field 'nmae'; did you mean 'name'?"),
        (
            "convolution_param { kernel: 3 }",
            "1:21: ConvolutionParameter has no field 'kernel'; did you mean 'kernel_size'?",
        ),
        ("name: 'a'\n  name: 'b'", "2:3: layer 'a': 'name' occurs twice in LayerParameter, which allows it once"),
        (
            "relu_param {} relu_param {}",
            "1:15: 'relu_param' occurs twice in LayerParameter, which allows it once",
        ),
        ("clip_param { min: 1 }", "1:12: ClipParameter needs 'max'"),
        ("phase: TSET", "1:8: phase: 'TSET' is not a value of Phase; did you mean 'TEST'?"),
        ("phase: 7", "1:8: phase: '7' is not a value of Phase; known: TRAIN, TEST, RUN, FORWARDA, FORWARDB"),
        ("propagate_down: 2", "1:17: propagate_down: expected true or false, found '2'"),
        ("loss_weight: 0x10", "1:14: loss_weight: expected a number, found '0x10'"),
        ("loss_weight: 010", "1:14: loss_weight: expected a number, found '010'"),
        ("loss_weight: 1x", "1:14: loss_weight: expected a number, found '1x'"),
        ("softmax_param { axis: 09 }", "1:23: axis: expected an integer, found '09'"),
        ("softmax_param { axis: 1.0 }", "1:23: axis: expected an integer, found '1.0'"),
        (
            "softmax_param { axis: 2147483648 }",
            "1:23: axis: 2147483648 is out of range: -2147483648 to 2147483647",
        ),
        (f"phase: {'7' * 6000}", "1:8: phase: a number of 6000 digits is out of range: -2147483648 to 2147483647"),
        (f"phase: 0x{'7' * 6000}", "1:8: phase: the number is out of range: -2147483648 to 2147483647"),
        ("dummy_data_param { num: -1 }", "1:25: num: -1 is out of range: 0 to 4294967295"),
        ("name: 5", "1:7: name: expected a string in quotes, found '5'"),
        (
            "name: top: 'a'",
            "1:7: name: expected a string in quotes, found 'top'\n"
            "1:10: expected the name of a field of LayerParameter, found ':'",
        ),
        ("name: ['a']", "1:7: name takes one value, not a list"),
        ('name: "a', "1:7: name: expected a string in quotes, found an unclosed string"),
        ('name: "a" "b', "1:11: this string is not closed on its line"),
        ("name: '\\ud800'", "1:7: name: '\\ud800' is not a valid escape: there is no such character"),
        ("name: 'a' \udcff", "1:11: layer 'a': expected the name of a field of LayerParameter, found '\\udcff'"),
        ('name "a"', "1:6: expected ':', found '\"a\"'"),
        ("relu_param 3", "1:12: expected '{', found '3': this field holds a message"),
        ("[caffe.x]: 3", "1:1: LayerParameter has no extensions"),
        ("relu_param {\n", "1:13: the text ends inside ReLUParameter, opened at line 1, column 12"),
        (
            "relu_param { negative_slope: 1 >",
            "1:32: expected the name of a field of ReLUParameter, found '>'",
        ),
        ("}", "1:1: expected the name of a field of LayerParameter, found '}'"),
        ("top: ['a',]", "1:11: expected a value, found ']'"),
        ("x { y [ }", "1:1: LayerParameter has no field 'x'\n1:9: expected ']', found '}'"),
    ],
)
def test_errors_name_line_and_column(text, message):
    with pytest.raises(SchemaError) as exc_info:
        parse_text(text, LAYER)
    assert str(exc_info.value) == message


@pytest.mark.parametrize(
    ("lines", "messages"),
    [
        (
            ["layer {", "  name: 'a'", "layer { name: 'b' }", "layer { nmae: 'c' }"],
            "3:1: layer 'a': a closing brace is missing before this `layer`: LayerParameter, opened at line 1, "
            "is still open\n4:9: LayerParameter has no field 'nmae'; did you mean 'name'?",
        ),
        (
            ["layers { name: 'a'", "  relu_param {", "layers { name: 'b' }"],
            "3:1: layer 'a': a closing brace is missing before this `layers`: ReLUParameter, opened at line 2, "
            "is still open",
        ),
        (["layers { layer { name: 'a' } bottom: 'x' }", "layers { layer { nmae: 'b' } }"], "2:18: "),
        (["layer { layer: 'b' }"], "1:9: LayerParameter has no field 'layer'"),
    ],
)
def test_a_missing_brace_is_reported_once_and_the_next_layer_is_parsed(lines, messages):
    message, problems = parse_valid_fields("\n".join(lines), caffe_pb2.NetParameter)
    assert "\n".join(map(str, problems)).startswith(messages)
    assert len(problems) == messages.count("\n") + 1
    assert len(message.layer) + len(message.layers) == sum(line.startswith("layer") for line in lines)


@pytest.mark.parametrize(
    ("text", "name", "top"),
    [
        ("name: bare top: t", "bare", ["t"]),
        ("name:models/a-b_1.0,top: [t, u]", "models/a-b_1.0", ["t", "u"]),
        ("name: C:\\nets\\a;top: t # c", "C:\\nets\\a", ["t"]),
        ("name: A=x.y;B=C:\\d~e;", "A=x.y;B=C:\\d~e;", []),
        ("name: 3d#c\ntop: 'x y'", "3d", ["x y"]),
    ],
)
def test_strings_without_quotes_end_at_a_space(text, name, top, caplog):
    layer = parse_text(text, LAYER, file=text)
    assert (layer.name, list(layer.top)) == (name, top)
    assert f"name: {name}" in caplog.text
    assert "strings without quotes" in caplog.text


def test_all_mistakes_at_once_and_the_values_of_unknown_fields_are_skipped():
    text = """
    layer {
      name: "a" foo: -3 bar { x: [1, <y: 'z'>] z < > } baz: 'a' "b" qux: [ {} ]
      relu_param { negative_slop: 1 engine: CAFE }
    }
    layer { type: 5 top: "t" }
    nane: "n"
    """
    with pytest.raises(SchemaError) as exc_info:
        parse_text(text, caffe_pb2.NetParameter, file="net.prototxt")
    assert [(p.line, p.column) for p in exc_info.value.problems] == [
        (3, 17), (3, 25), (3, 56), (3, 69), (4, 20), (4, 45), (6, 19), (7, 5),
    ]  # fmt: skip
    assert {p.file for p in exc_info.value.problems} == {"net.prototxt"}


@pytest.mark.parametrize("opening", ["nested_type {", "nested_type <", "nested_type: ["])
def test_unclosed_nesting_is_rejected(opening):
    with pytest.raises(SchemaError):
        parse_text(opening * 100_000, descriptor_pb2.DescriptorProto)
    with pytest.raises(SchemaError):
        parse_text("unknown {" * 100_000, LAYER)


def test_comments_may_contain_invalid_utf8():
    assert parse_text("name: 'a' # \udcff\udc80", LAYER).name == "a"


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
numbers = st.floats(allow_nan=False)  # text does not say which NaN


@st.composite
def draw_layer(draw: st.DrawFn) -> caffe_pb2.LayerParameter:
    layer = caffe_pb2.LayerParameter(name=draw(names), top=draw(st.lists(names, max_size=3)))
    layer.loss_weight.extend(draw(st.lists(st.floats(width=32, allow_nan=False), max_size=4)))
    layer.propagate_down.extend(draw(st.lists(st.booleans(), max_size=2)))
    if draw(st.booleans()):
        layer.phase = draw(st.sampled_from([0, 1]))
    layer.softmax_param.axis = draw(st.integers(-(2**31), 2**31 - 1))
    layer.convolution_param.pad.extend(draw(st.lists(st.integers(0, 2**32 - 1), max_size=3)))
    layer.input_param.shape.add(dim=draw(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4)))
    layer.blobs.add(double_data=draw(st.lists(numbers, max_size=3)))
    layer.blobs.add(raw_data=draw(st.binary(max_size=8)))
    return layer


@given(draw_layer())
def test_printed_text_is_parsed_to_the_same_message(layer):
    assert parse_text(format_text(layer), LAYER).SerializeToString() == layer.SerializeToString()


PIECES = """name: type: top: top: loss_weight: propagate_down: phase: param: param { foo foo: { } }
    relu_param { relu_param: < negative_slope: > [ ] , ; : "a" "a" 'b' 'b' " 1 1 -1 -inf 1.5f 0x1F
    inf TRAIN true # é"""


@settings(max_examples=400)
@given(st.lists(st.sampled_from([*PIECES.split(), "\n"]), max_size=10).map(" ".join))
def test_any_text_reads_as_google_reads_it_or_is_refused(text):
    # strings without quotes are read here, but not by Google; before a string in quotes both refuse them
    word = r"(?=[\d.]*[A-Za-z_])[\w.]+(?=\s|$)(?!\s+[\"'])"
    expected = parse_with_google(re.sub(rf"(?a)((?:name|type|top):\s+(?:\[\s+)?)({word})", r'\1"\2"', text), LAYER)
    try:
        actual = parse_text(text, LAYER)
    except SchemaError:
        assert expected is None or not expected.IsInitialized()
    else:
        assert expected is not None
        assert actual.SerializeToString() == expected.SerializeToString()


def test_corpus_reads_as_google_reads_it(shared_folder):
    texts = []
    with zipfile.ZipFile(shared_folder / "corpus" / "nets.zip") as nets:
        texts += [(name, nets.read(name).decode(), caffe_pb2.NetParameter) for name in nets.namelist()]
    for path in sorted((shared_folder / "corpus" / "solvers").rglob("*.prototxt")):
        texts.append((path.name, path.read_text(), caffe_pb2.SolverParameter))
    rejected_names = []
    for name, text, message_class in texts:
        if message_class is caffe_pb2.SolverParameter:  # the first of a list of devices counts
            text = re.sub(r"(?m)^device_id: \[(\d+),.*", r"device_id: \1", original := text)
            assert parse_text(original, message_class) == parse_text(text, message_class)
        expected = parse_with_google(text, message_class)
        try:
            assert parse_text(text, message_class) == expected, name
        except SchemaError:
            assert expected is None, name
            rejected_names.append(name)
    # Three templates with placeholders for numbers.
    assert (len(texts), len(rejected_names)) == (405, 3)
