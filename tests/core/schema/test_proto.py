"""caffe.proto against the lists of declarations of BVLC Caffe and its forks."""

import csv
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor import FieldDescriptor

from caffejax.core.schema import caffe_pb2

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "golden"

TYPE_NAMES = {
    getattr(FieldDescriptor, f"TYPE_{name.upper()}"): name
    for name in ("bool", "bytes", "double", "float", "int32", "int64", "string", "uint32")
}


def read_rows(name: str) -> list[dict[str, str]]:
    with open(GOLDEN / "schema" / name, newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def find_descriptor(path: str):
    """Return the message or enum with this dotted name."""
    first, *inner_names = path.split(".")
    file = caffe_pb2.DESCRIPTOR
    result = file.message_types_by_name.get(first) or file.enum_types_by_name[first]
    for name in inner_names:
        result = result.nested_types_by_name.get(name) or result.enum_types_by_name[name]
    return result


def describe_field(field: FieldDescriptor) -> dict[str, str]:
    """Describe a field in the format of the lists."""
    default = ""
    if field.has_default_value:
        default = field.default_value
        if field.enum_type:
            default = field.enum_type.values_by_number[default].name
        elif isinstance(default, bool):
            default = str(default).lower()
        elif isinstance(default, float):
            default = f"{default:.9g}" if field.type == FieldDescriptor.TYPE_DOUBLE else f"{default:.6g}"
    composite = field.message_type or field.enum_type
    return {
        "number": str(field.number),
        "label": "repeated" if field.is_repeated else "required" if field.is_required else "optional",
        "type": composite.full_name.removeprefix("caffe.") if composite else TYPE_NAMES[field.type],
        "default": str(default),
        "packed": "packed" if field.is_packed else "",
    }


def test_all_bvlc_fields_are_unchanged():
    recorded_rows = read_rows("bvlc_caffe.tsv")
    mismatches = []
    for row in recorded_rows:
        owner, name = find_descriptor(row["message_or_enum"]), row["field"]
        if row["label"] == "enum":
            actual = {"number": str(owner.values_by_name[name].number)}
        else:
            actual = describe_field(owner.fields_by_name[name])
        if any(row[key] != value for key, value in actual.items()):
            mismatches.append((row, actual))
    assert len(recorded_rows) == 534
    assert mismatches == []


def test_all_names_of_forks_exist():
    missing = []
    for row in read_rows("fork_names.tsv"):
        owner = find_descriptor(row["message_or_enum"])
        names = owner.values_by_name if row["type"] == "enum" else owner.fields_by_name
        if row["field"] not in names:
            missing.append(f"{row['message_or_enum']}.{row['field']}")
    assert missing == []


def test_all_v1_parameters_exist_in_current_layers():
    v1 = caffe_pb2.V1LayerParameter.DESCRIPTOR
    current_fields = caffe_pb2.LayerParameter.DESCRIPTOR.fields_by_name
    params = [field for field in v1.fields if field.message_type and field.name != "layer"]
    assert len(params) > 40
    assert [f.name for f in params if current_fields[f.name].message_type != f.message_type] == []


def test_compiled_schema_is_up_to_date(tmp_path):
    pytest.importorskip("grpc_tools", reason="needs grpcio-tools, a dev dependency")
    script = f"import sys; sys.path.insert(0, {str(ROOT / 'scripts')!r}); import compile_schema, pathlib\n"
    script += f"compile_schema.compile_schema(pathlib.Path({str(tmp_path)!r}))"
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True)
    for name in ("caffe.binpb", "caffe_pb2.pyi", "forks.json"):
        assert (tmp_path / name).read_bytes() == (ROOT / "src/caffejax/core/schema" / name).read_bytes()


FOREIGN = """
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
file = descriptor_pb2.FileDescriptorProto(name="caffe.proto", package="caffe", syntax="proto2")
net = file.message_type.add(name="NetParameter")
net.field.add(name="name", number=77, type=9, label=1)
descriptor_pool.Default().Add(file)
pool = descriptor_pool.Default()
theirs = message_factory.GetMessageClass(pool.FindMessageTypeByName("caffe.NetParameter"))
"""


@pytest.mark.parametrize("order", ["theirs first", "ours first"])
def test_a_users_own_caffe_pb2_does_not_collide(order):
    """A user's schema has the same file and message names, with other field numbers; fields are matched by name."""
    ours = "from caffejax.core.schema import caffe_pb2, read_net\n"
    script = FOREIGN + ours if order == "theirs first" else ours + FOREIGN
    script += "assert read_net(theirs(name='x')) == caffe_pb2.NetParameter(name='x')"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_messages_can_be_pickled():
    net = caffe_pb2.NetParameter(name="x")
    assert pickle.loads(pickle.dumps(net)) == net
