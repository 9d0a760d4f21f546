"""Message classes of caffe.proto, from a compiled schema in a private descriptor pool.

The default pool of a process knows each message name once. Users often have a `caffe_pb2` made from their fork's
schema, which a private pool does not collide with. `scripts/compile_schema.py` writes the compiled schema,
`caffe.binpb`, and the types, `caffe_pb2.pyi`.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper


def _load(resource: str, module: str) -> dict[str, Any]:
    """Return what protoc's Python module for a schema would define.

    Args:
        resource: file name of the descriptor set beside this module, with one file in it.
        module: name of the module that the classes shall say they are from.

    Returns:
        Message classes, enum wrappers and top-level enum values, by name.
    """
    content = files(__package__).joinpath(resource).read_bytes()
    (file,) = descriptor_pb2.FileDescriptorSet.FromString(content).file
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    descriptor = pool.FindFileByName(file.name)
    names: dict[str, Any] = {"DESCRIPTOR": descriptor}
    for name, message in descriptor.message_types_by_name.items():
        names[name] = message_factory.GetMessageClass(message)
        names[name].__module__ = module
    for name, enum in descriptor.enum_types_by_name.items():
        names[name] = EnumTypeWrapper(enum)
        names.update({value.name: value.number for value in enum.values})
    return names


globals().update(_load("caffe.binpb", __name__))
