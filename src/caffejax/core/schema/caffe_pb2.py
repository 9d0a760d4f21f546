"""Message classes of caffe.proto, from a compiled schema in a private descriptor pool.

The default pool of a process can have each message name only once. Users often import a `caffe_pb2` of their fork; in a
private pool, the classes here do not collide with it. `scripts/compile_schema.py` writes the compiled schema,
`caffe.binpb`, and the types, `caffe_pb2.pyi`.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper


def _load() -> dict[str, Any]:
    """Return the names that protoc's Python module for the schema would define: classes, enums and their values."""
    content = files(__package__).joinpath("caffe.binpb").read_bytes()
    (file,) = descriptor_pb2.FileDescriptorSet.FromString(content).file
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    descriptor = pool.FindFileByName(file.name)
    names: dict[str, Any] = {"DESCRIPTOR": descriptor}
    for name, message in descriptor.message_types_by_name.items():
        names[name] = message_factory.GetMessageClass(message)
        names[name].__module__ = __name__
    for name, enum in descriptor.enum_types_by_name.items():
        names[name] = EnumTypeWrapper(enum)
        names.update({value.name: value.number for value in enum.values})
    return names


globals().update(_load())
