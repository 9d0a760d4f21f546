"""The fields of messages that code reads, recorded in a process whose messages are classes of Python.

protobuf makes them so if PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION is "python"; `recording_process` is such a process.
"""

import functools
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from google.protobuf.descriptor import Descriptor
from google.protobuf.message_factory import GetMessageClass

from caffejax.core.graph import build_graph
from caffejax.core.program.net import Net
from caffejax.core.schema import caffe_pb2, read_net

from .case import Case
from .case_net import CaseNet

FieldRead = tuple[str, str, str]  # the file of the code that reads, the full name of the message, the field
_reads: set[FieldRead] = set()


@functools.cache
def _record() -> None:
    """Have all messages of the schema record which of their fields are read."""
    for descriptor in caffe_pb2.DESCRIPTOR.message_types_by_name.values():
        _record_message(descriptor)


def _record_message(descriptor: Descriptor) -> None:
    message_class: Any = GetMessageClass(descriptor)

    def add(name: str) -> None:
        _reads.add((sys._getframe(2).f_code.co_filename, descriptor.full_name, name))

    def make_property(name: str) -> property:
        original = getattr(message_class, name)

        def get(message: Any) -> Any:
            add(name)
            return original.fget(message)

        return property(get, original.fset)

    def has_field(message: Any, name: str, original: Any = message_class.HasField) -> bool:
        add(name)
        return original(message, name)

    for field in descriptor.fields:
        setattr(message_class, field.name, make_property(field.name))
    message_class.HasField = has_field
    for nested in descriptor.nested_types:
        _record_message(nested)


def list_reads_of_cases(cases: list[Case]) -> set[tuple[str, str]]:
    """Return the messages and fields that are read while nets of these cases are built, lowered or run on the host."""
    _record()
    _reads.clear()
    for case in cases:
        build_graph(read_net(case.prototxt(2)), caffe_pb2.NetState(phase=case.phase))
        for backward in ("autodiff", "rules"):
            case_net = CaseNet(case, backward=backward, rows=2)
            if case_net.is_on_host:
                case_net.value_and_grad(*case_net.point)
            else:
                jax.jit(case_net.value_and_grad).lower(*case_net.point)
    return {(message, field) for _, message, field in _reads}


def list_reads_of_recorded(cases: list[tuple[Path, str]]) -> set[FieldRead]:
    """Return what is read while recorded cases, a path and a phase each, are built, and differentiated by rules."""
    _record()
    _reads.clear()
    for path, phase in cases:
        net = Net(path, phase, backward="rules")
        params, state = net.init(jax.random.key(0))
        inputs = {name: jnp.ones(net.graph.blobs[name].shape) for name in net.input_names}

        def compute(params: Any, inputs: Any, net: Any = net, state: Any = state) -> Any:
            blobs, _ = net.apply(params, state, inputs, key=jax.random.key(1))
            return sum((jnp.sum(blob) for blob in blobs.values()), start=jnp.zeros(()))

        if net.has_host_layers:
            net.apply(params, state, inputs, key=jax.random.key(1))
        else:
            jax.eval_shape(jax.grad(compute, (0, 1)), params, inputs)
    return set(_reads)
