"""Compare each distinct layer of a folder of nets, frozen, with the same layer computed by XLA.

python scripts/sweep_frozen_layers.py ../shared/corpus/nets.zip --precision float32 --out layers.jsonl

A layer keeps its channels and settings, and up to four layers behind it that keep the shape, of which oneDNN may
compute some in the same pass; planes are at most 16 cells high and wide, and batches have at most 4 images. Weights and
inputs are drawn. The table has a row for each implementation: the number of layers that it computed, and the largest
difference as a part of the largest number. The exit code is 1 if a difference is larger than the precision allows, or a
layer raises an error.
`ONEDNN_MAX_CPU_ISA=AVX2` in the environment shows what a processor without AVX-512 computes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "cpu" / "frozen"))

from frozen_nets import FAST_COMPILATION, draw_inputs, draw_variables

from caffejax.base.errors import CaffejaxError
from caffejax.base.glog import log
from caffejax.core.graph import Graph, Layer, make_inference_graph
from caffejax.core.program.net import Net
from caffejax.core.schema.caffe_pb2 import LayerParameter, NetParameter
from caffejax.cpu.frozen.layer_lowerings import ONEDNN

TOLERANCES = {"float32": 1e-4, "bfloat16": 2e-2, "int8": 5e-2}
LARGEST_PLANE = 16
LARGEST_BATCH = 4
LONGEST_CHAIN = 5  # layers


@dataclass(frozen=True)
class Case:
    """A net of one layer and the layers behind it.

    Attributes:
        net: the net.
        layers: the types of the layers, joined by " + ".
        source: the file in which a layer like this occurs first.
    """

    net: NetParameter
    layers: str
    source: str

    def __str__(self) -> str:
        shapes = [tuple(layer.input_param.shape[0].dim) for layer in self.net.layer if layer.HasField("input_param")]
        return f"{self.layers} on {', '.join(map(str, shapes))} in {self.source}"


def find_cases(archive: Path, report: Counter[str]) -> Iterator[Case]:
    """Yield each distinct layer of the nets in a .zip file once, with the layers behind it.

    Args:
        archive: the .zip file.
        report: counts the nets that do not load.
    """
    known_nets: set[bytes] = set()
    with zipfile.ZipFile(archive) as nets:
        for name in sorted(nets.namelist()):
            try:
                graph = Net(nets.read(name).decode(), "TEST").graph
                graph = make_inference_graph(graph, graph.outputs)
            except CaffejaxError:
                report["nets that do not load"] += 1
                continue
            report["nets"] += 1
            readers = defaultdict[str, list[Layer]](list)
            for layer in graph.layers:
                for bottom in layer.bottoms:
                    readers[bottom].append(layer)
            fused_keys: set[str] = set()
            for layer in graph.layers:
                if layer.type.is_input or layer.key in fused_keys or layer.type.name not in ONEDNN.rules:
                    continue
                chain = _find_chain(graph, layer, readers)
                fused_keys |= {fused.key for fused in chain}
                net = _make_net(graph, chain)
                identity = net.SerializeToString(deterministic=True)
                if identity not in known_nets:
                    known_nets.add(identity)
                    yield Case(net, " + ".join(fused.type.name for fused in chain), name.rpartition("/")[2])


def _find_chain(graph: Graph, layer: Layer, readers: dict[str, list[Layer]]) -> list[Layer]:
    """Return a layer and those behind it that keep the shape and have no other reader of their bottom."""
    chain = [layer]
    while len(chain) < LONGEST_CHAIN and len(chain[-1].tops) == 1:
        (top,) = chain[-1].tops
        if len(readers[top]) != 1 or top in graph.outputs:
            break
        reader = readers[top][0]
        keeps_shape = all(graph.blobs[name].shape == graph.blobs[top].shape for name in (*reader.bottoms, *reader.tops))
        if reader.type.name not in ONEDNN.rules or not keeps_shape:
            break
        chain.append(reader)
    return chain


def _make_net(graph: Graph, chain: Sequence[Layer]) -> NetParameter:
    """Return a net of the layers of a chain, with an Input layer for each blob that they read, of small planes."""
    first, *others = (_make_message(layer) for layer in chain)
    sizes = {name: graph.blobs[name].shape for name in chain[0].bottoms}
    small = {
        name: (min(s[0], LARGEST_BATCH), *s[1:2], *(min(n, LARGEST_PLANE) for n in s[2:])) for name, s in sizes.items()
    }
    for shapes in (small, sizes):  # a few layers, such as Crop and Reshape, need the sizes as published
        net = NetParameter(layer=[*_make_inputs(shapes), first])
        try:
            shape = Net(net, "TEST").graph.blobs[first.top[0]].shape
            break
        except CaffejaxError:
            continue
    produced = {top for layer in chain for top in layer.tops}
    further_names = dict.fromkeys(n for layer in chain[1:] for n in layer.bottoms if n not in produced | sizes.keys())
    net.layer.extend([*_make_inputs(dict.fromkeys(further_names, shape)), *others])
    return _rename_blobs(net)


def _make_inputs(shapes: Mapping[str, tuple[int, ...]]) -> list[LayerParameter]:
    layers = [LayerParameter(type="Input", top=[name]) for name in shapes]
    for layer, shape in zip(layers, shapes.values(), strict=True):
        layer.input_param.shape.add(dim=shape)
    return layers


def _make_message(layer: Layer) -> LayerParameter:
    """Return a layer's settings without its fillers."""
    message = LayerParameter()
    message.CopyFrom(layer.context.layer)
    for _, settings in message.ListFields():
        for field in getattr(settings, "DESCRIPTOR", LayerParameter.DESCRIPTOR).fields_by_name:
            if field.endswith("filler") and hasattr(settings, "ClearField"):
                settings.ClearField(field)
    del message.bottom[:], message.top[:]
    message.type = layer.definition.layer.type
    message.bottom.extend(layer.bottoms)
    message.top.extend(layer.tops)
    return message


def _rename_blobs(net: NetParameter) -> NetParameter:
    """Number the blobs and layers of a net, so that nets that differ only in names are equal."""
    names: dict[str, str] = {}
    for i, layer in enumerate(net.layer):
        layer.name = f"layer{i}"
        for blobs in (layer.bottom, layer.top):
            blobs[:] = [names.setdefault(name, f"blob{len(names)}") for name in blobs]
    return net


def compare(case: Case, precision: str) -> tuple[list[str], float]:
    """Return the implementations of a frozen layer, and its largest difference as a part of the largest number."""
    plain, net = Net(case.net, "TEST", kernels="reference"), Net(case.net, "TEST")
    outputs = plain.outputs
    variables, inputs = draw_variables(plain), draw_inputs(plain)
    calibration = [inputs] if precision == "int8" else None
    frozen = net.freeze(variables, outputs, precision=precision, calibration=calibration)
    actual = frozen({name: inputs[name] for name in frozen.input_names})
    steps = [step for part in frozen.compile().programs.values() for step in part.executable.steps]
    expected = plain.jit(
        lambda v, x: plain.apply(v.params, v.state, x, blobs=outputs)[0], compiler_options=FAST_COMPILATION
    )(variables, inputs)
    largest_difference = 0.0
    for name in outputs:
        a, b = np.asarray(actual[name]), np.asarray(expected[name])
        difference = float(np.abs(a - b).max(initial=0) / max(float(np.abs(b).max(initial=0)), 1e-30))
        largest_difference = max(largest_difference, difference if difference == difference else np.inf)
    return steps, largest_difference


def main() -> int:
    """Compare; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nets", type=Path, help="a .zip file of net prototxts")
    parser.add_argument("--precision", choices=TOLERANCES, default="float32", help="of the frozen layers")
    parser.add_argument("--seconds", type=float, default=3600, help="after which no further layer is compared")
    parser.add_argument("--out", type=Path, help="a file for the results, a line of JSON for each layer")
    options = parser.parse_args()
    log.setLevel("ERROR")  # without remarks on the forms of old nets
    report, start = Counter[str](), time.monotonic()
    rows: dict[str, list[float]] = defaultdict(list)
    with open(options.out or "/dev/null", "w") as out:
        for case in find_cases(options.nets, report):
            if time.monotonic() - start > options.seconds:
                print("the time is over: further layers are not compared")
                break
            report["layers"] += 1
            record: dict[str, Any] = {"case": str(case)}
            try:
                steps, difference = compare(case, options.precision)
                record |= {"steps": steps, "difference": difference}
                for step in sorted(set(steps)) or ["no program"]:
                    rows[step].append(difference)
                is_wrong = difference > TOLERANCES[options.precision]
            except Exception as error:  # each is a finding
                record["error"], is_wrong = f"{type(error).__name__}: {error}", True
            if is_wrong:
                report["layers that are wrong"] += 1
                print("wrong:", json.dumps(record), flush=True)
            out.write(json.dumps(record) + "\n")
            jax.clear_caches()
    print_table(rows)
    print(", ".join(f"{count} {what}" for what, count in report.items()), f"in {time.monotonic() - start:.0f} s")
    return 1 if report["layers that are wrong"] else 0


def print_table(rows: dict[str, list[float]]) -> None:
    """Print a table of the implementations, in Markdown."""
    print("| implementation | layers | largest difference |\n|---|---|---|")
    for step, differences in sorted(rows.items(), key=lambda row: -len(row[1])):
        print(f"| `{step}` | {len(differences)} | {max(differences):.1e} |")


if __name__ == "__main__":
    sys.exit(main())
