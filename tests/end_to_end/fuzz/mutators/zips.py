"""Mutations of zip archives with valid checksums: .npy headers, names, methods, sizes and the order of members."""

from __future__ import annotations

import io
import zipfile
from random import Random

from .byte_mutations import damage
from .numbers import draw_edge

_DTYPES = [
    "<f4",
    ">f4",
    "<f8",
    "|b1",
    "|O",
    "<c16",
    "<U3",
    "|S5",
    "<M8[ns]",
    "|V7",
    "<f2",
    "<i8",
    "float128",
    "",
    "[('a','<f4')]",
]
_SHAPES = [
    "()",
    "(0,)",
    "(-1,)",
    "(2, 3)",
    "(1000000, 1000000)",
    "(4611686018427387904, 4)",
    "(1,) * 9",
    "3",
    "(True,)",
    "(2.0,)",
    "(" + "1," * 70 + ")",
]


def change_archive(rng: Random, content: bytes) -> bytes:
    """Change a member, and write the archive again; sometimes the archive's bytes instead."""
    choice = rng.random()
    if choice < 0.3:
        return damage(rng, content)
    if choice < 0.5:
        return _change_headers(rng, content)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    index = rng.randrange(len(members))
    name, data = members[index]
    if choice < 0.85:
        members[index] = name, change_npy(rng, data)
    elif choice < 0.95:
        names = [member for member, _ in members]
        members[index] = (
            rng.choice(
                [
                    *names,
                    "",
                    "/",
                    "../x.npy",
                    "a/b/c.npy",
                    f"{name}/",
                    "conv/1000000000000.npy",
                    "conv/-1.npy",
                    "conv/\u0663.npy",
                    "x" * 3000,
                ]
            ),
            data,
        )
    else:
        members = rng.choice([members[:-1], members * 2, [], members[::-1]])
    out = io.BytesIO()
    method = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED, zipfile.ZIP_LZMA))
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in members:
            with archive.open(zipfile.ZipInfo(name), "w") as file:
                file.write(data)
    return out.getvalue()


def change_npy(rng: Random, data: bytes) -> bytes:
    """Change the head of an .npy file, or its bytes."""
    choice = rng.random()
    end = data.find(b"\n") + 1
    if choice < 0.2 or not end:
        return damage(rng, data)
    if choice < 0.3:
        return data[:end] + damage(rng, data[end:])
    shape, fortran_order, dtype = rng.choice(_SHAPES), rng.choice(("True", "False", "0", "None")), rng.choice(_DTYPES)
    fields = {"descr": repr(dtype) if dtype[:1] != "[" else dtype, "fortran_order": fortran_order, "shape": shape}
    if rng.random() < 0.2:
        fields.pop(rng.choice(sorted(fields)))
    if rng.random() < 0.1:
        fields["more"] = rng.choice(("1", "(" * 300 + ")" * 300, "{}", "9" * 5000))
    text = "{" + ", ".join(f"'{key}': {value}" for key, value in fields.items()) + "}\n"
    version = rng.choice((1, 1, 1, 2, 3, 9))
    size = (
        len(text).to_bytes(2 if version == 1 else 4, "little")
        if rng.random() < 0.9
        else draw_edge(rng, 16).to_bytes(2, "little")
    )
    return b"\x93NUMPY" + bytes([version, 0]) + size + text.encode() + data[end:]


def _change_headers(rng: Random, content: bytes) -> bytes:
    """Overwrite a number in one of the archive's own heads."""
    result = bytearray(content)
    signature, length = rng.choice(((b"PK\3\4", 30), (b"PK\1\2", 46), (b"PK\5\6", 22), (b"PK\1\2", 46)))
    offsets = [i for i in range(len(result)) if result.startswith(signature, i)]
    if not offsets:
        return damage(rng, content)
    offset, size = rng.choice(offsets) + rng.randrange(4, length), rng.choice((1, 2, 4))
    result[offset : offset + size] = draw_edge(rng, 8 * size).to_bytes(size, "little")
    return bytes(result)
