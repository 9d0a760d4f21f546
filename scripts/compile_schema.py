"""Compiles caffe.proto of caffejax.core.schema to descriptors (caffe.binpb), types (caffe_pb2.pyi) and the list of
fields that forks added to BVLC's messages (forks.json), all beside it.

Run it after editing caffe.proto. Needs grpcio-tools, which is among the dev dependencies.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from grpc_tools import protoc

SCHEMA = Path(__file__).resolve().parent.parent / "src" / "caffejax" / "core" / "schema"


def compile_schema(out: Path) -> None:
    """Write caffe.binpb, caffe_pb2.pyi and forks.json into the folder `out`."""
    arguments = [
        f"-I{SCHEMA}",
        f"--descriptor_set_out={out / 'caffe.binpb'}",
        f"--pyi_out={out}",
        "caffe.proto",
    ]
    if protoc.main(["protoc", *arguments]) != 0:
        sys.exit("protoc refused caffe.proto")
    types = out / "caffe_pb2.pyi"
    # A fork has enum values called None, which Python cannot spell as a name.
    text = re.sub(r"^ *None: .*\n", "", types.read_text(), flags=re.MULTILINE)
    types.write_text('# mypy: disable-error-code="type-arg,no-untyped-def"\n' + text)
    forks = find_fork_fields((SCHEMA / "caffe.proto").read_text())
    (out / "forks.json").write_text(json.dumps(forks, indent=1) + "\n")


def find_fork_fields(proto: str) -> dict[str, dict[str, str]]:
    """Return `{message: {field: the forks that have it}}`: what stands after an empty line inside a message."""
    result: dict[str, dict[str, str]] = {}
    for message, body in re.findall(r"^message (\w+) \{\n(.*?)^\}", proto, re.MULTILINE | re.DOTALL):
        _, _, fork_part = body.partition("\n\n")
        fields = re.findall(r"^  (?:optional|repeated) \S+ (\w+) = .*?;  // ([^;\n]*)", fork_part, re.MULTILINE)
        if fields:
            result[message] = dict(fields)
    return result


if __name__ == "__main__":
    compile_schema(SCHEMA)
