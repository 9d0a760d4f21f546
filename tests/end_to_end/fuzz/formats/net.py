"""Nets in prototxt: built in both phases, summed up, and drawn."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from caffejax import Net, summarize
from caffejax.core.schema import caffe_pb2, read_net
from caffejax.core.schema.text import parse_text
from caffejax.pycaffe.draw import draw_net_to_file

from ..harness import Files, Harness
from ..mutators.byte_mutations import damage
from ..mutators.proto_text import change_message
from ..mutators.tokens import change_tokens
from ._schema import differs_from_google, list_quoted_layer_types, list_schema_words

_CONFIGS = Path(__file__).parents[4] / "configs"
_GOLDEN = Path(__file__).parents[3] / "golden" / "layers"


def _make_intact_sets() -> list[Files]:
    lenet = (
        (_CONFIGS / "digits" / "lenet_train_test.prototxt")
        .read_text()
        .replace('"digits_', f'"{_CONFIGS}/digits/digits_')
    )
    layers = [sorted(folder.glob("*.prototxt")) for folder in sorted(_GOLDEN.iterdir()) if folder.is_dir()]
    texts = [lenet.encode(), *(paths[0].read_bytes() for paths in layers if paths)]
    return [{"net.prototxt": text} for text in texts]


def change_net(rng: Random, files: Files) -> Files:
    """Change tokens of the net; now and then any bytes, or put another type in the place of one."""
    text, choice = files["net.prototxt"], rng.random()
    if choice > 0.4:
        names = [name.strip('"') for name in rng.sample(list_quoted_layer_types(), 8)]
        return {**files, "net.prototxt": change_message(rng, text, caffe_pb2.NetParameter, names)}
    if choice < 0.05:
        return {**files, "net.prototxt": damage(rng, text)}
    vocabulary = [*list_schema_words(), *list_quoted_layer_types()] if choice < 0.2 else list_schema_words()
    return {**files, "net.prototxt": change_tokens(rng, text, vocabulary)}


def build(folder: Path) -> Any:
    """Build the net in both phases."""
    path = folder / "net.prototxt"
    message = read_net(path)
    for phase in ("TEST", "TRAIN"):
        net = Net(path, phase, level=0)  # type: ignore[arg-type]
        str(summarize(net))
    return message


def _read(folder: Path) -> Any:
    message = read_net(folder / "net.prototxt")
    if message.layer:
        draw_net_to_file(message, folder / "net.dot", "LR", None, True)
    return build(folder)


def _describe_difference(damaged: Files, intact: Files, expected: Any, actual: Any) -> str | None:
    text = damaged["net.prototxt"]
    message = parse_text(text.decode("utf-8-sig", "surrogateescape"), caffe_pb2.NetParameter)
    return "other than Google's parser: the net" if differs_from_google(text, message) else None


HARNESS = Harness(_make_intact_sets, change_net, _read, _describe_difference, is_text=True, location_text="layer '")
