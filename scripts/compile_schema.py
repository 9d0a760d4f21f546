"""Compiles caffe.proto of caffejax.schema to descriptors (caffe.binpb) and types (caffe_pb2.pyi) beside it.

Run it after editing caffe.proto. Needs grpcio-tools, which is among the dev dependencies.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from grpc_tools import protoc

SCHEMA = Path(__file__).resolve().parent.parent / "src" / "caffejax" / "schema"


def compile_schema(out: Path) -> None:
    """Writes caffe.binpb and caffe_pb2.pyi into the folder `out`."""
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


if __name__ == "__main__":
    compile_schema(SCHEMA)
