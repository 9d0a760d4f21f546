"""Export deploy nets for engines, run the files there, and write the table of exceptions into docs/exporting_onnx.md.

python scripts/check_deploy_exports.py FOLDER    # runs the nets in the folder, and writes the table
python scripts/check_deploy_exports.py --write   # writes the table
python scripts/check_deploy_exports.py --check   # fails if it is out of date

The nets are the *deploy*.prototxt in the folder with fewer parameters than --max_params, smallest first. Weights and
inputs are drawn, and inputs of 1 x 1 pixels become 64 x 64. Each net has a process of its own. The results are in
deploy_exports.jsonl, a line for each net; nets in it are skipped unless they failed, so that a run of some adds to it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from page_writer import replace_part

if TYPE_CHECKING:
    from caffejax.export import InferenceModel

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

ENGINES = ("onnxruntime", "opencv5")
PAGE = ROOT / "docs" / "exporting_onnx.md"
RESULTS = ROOT / "scripts" / "deploy_exports.jsonl"
PERTURBATION = 1e-6  # of the inputs, to see how far the net itself moves
PLACEHOLDER_SIZE = (64, 64)  # of images whose size the prototxt leaves open


def assess(path: str, engine_names: list[str]) -> dict[str, Any]:
    """Return for each engine the largest difference of an output, or the reason for a refusal."""
    from caffejax import CaffejaxError
    from caffejax.export import write_onnx
    from caffejax.export.engines import ENGINES as PROFILES
    from caffejax.export.proof import compare_outputs, compute_expected, draw_inputs, find_detections, run_in_engine
    from export.run_exports import make_subject

    model = make_subject(path, "TEST", PLACEHOLDER_SIZE)
    inputs, outcomes = draw_inputs(model, {}), dict[str, Any]()
    with tempfile.TemporaryDirectory() as folder:
        for name in engine_names:
            engine, file = PROFILES[name], str(Path(folder) / f"{name}.onnx")
            settings = {"engine": engine, "opset": engine.opset, "pad_rows": engine.pad_rows, "symbolic_batch": False}
            try:
                write_onnx(model, file, **settings)
                outputs = run_in_engine(str(engine.package), file, inputs)
            except CaffejaxError as error:
                outcomes[name] = {"refused": error.problems[0].message}
                continue
            expected = compute_expected(model, inputs, pad_rows=engine.pad_rows)
            detections = find_detections(model)
            differences = compare_outputs(outputs, expected, detections)
            worst = max(differences, key=lambda item: item.relative)
            outcomes[name] = {"largest": worst.relative, "text": str(worst), "agrees": worst.is_small}
            if not worst.is_small:
                moved = {key: (x * (1 + PERTURBATION)).astype(x.dtype) for key, x in inputs.items()}
                moved_outputs = compute_expected(model, moved, pad_rows=engine.pad_rows)
                moves = {item.output: item.relative for item in compare_outputs(moved_outputs, expected, detections)}
                outcomes[name]["moves"] = moves[worst.output]
                if part := find_last_layer(model, worst.output, set(outputs)):
                    bottoms = {key: outputs[key] for key in part.inputs}
                    top = compute_expected(part, bottoms, pad_rows=engine.pad_rows)
                    (difference,) = compare_outputs({worst.output: outputs[worst.output]}, top)
                    outcomes[name] |= {"layer": part.layers[0].type.name, "of_bottoms": difference.relative}
    return outcomes


def find_last_layer(model: InferenceModel, output: str, known_blobs: set[str]) -> InferenceModel | None:
    """Return the layer that computes an output as a net, or None if it has params, or a bottom that is not known."""
    import jax

    from caffejax import Net
    from caffejax.core.schema.caffe_pb2 import NetParameter
    from caffejax.export import make_inference_model

    graph = model.net.graph
    layer = next(layer for layer in model.layers if output in layer.tops)
    names = [graph.split_roots.get(name, name) for name in layer.bottoms]
    if layer.all_params or not known_blobs.issuperset(names):
        return None
    message = NetParameter()
    for name in names:
        message.layer.add(name=name, type="Input", top=[name]).input_param.shape.add(dim=graph.blobs[name].shape)
    message.layer.add().CopyFrom(layer.definition.layer)
    del message.layer[-1].bottom[:]
    message.layer[-1].bottom.extend(names)
    net = Net(message, "TEST")
    return make_inference_model(net, net.init(jax.random.key(0)), [output])


def find_nets(folder: Path, max_params: float) -> list[Path]:
    """Return the deploy nets in a folder that load, the smallest first."""
    from caffejax import CaffejaxError, Net
    from caffejax.base.glog import collect_warnings

    sizes = {}
    for path in sorted(folder.rglob("*deploy*.prototxt")):
        try:
            with collect_warnings():
                graph = Net(path, "TEST").graph
        except CaffejaxError as error:
            print(f"{path.name}: does not load: {error.problems[0]}", flush=True)
            continue
        sizes[path] = sum(int(np.prod(param.spec.shape)) for param in graph.variables)
    return sorted((path for path, size in sizes.items() if size < max_params), key=lambda path: sizes[path])


def run(options: argparse.Namespace) -> None:
    """Assess each net in a process of its own, and add it to the results."""
    for path in find_nets(options.folder, options.max_params):
        results = {result["net"]: result for result in read_results()}
        if "failed" not in results.get(path.stem, {"failed": ""}):
            continue
        command = [sys.executable, __file__, "--assess", str(path), *options.engine]
        try:
            process = subprocess.run(command, capture_output=True, text=True, timeout=options.seconds, check=False)
            failure = (
                {}
                if process.returncode == 0
                else {"failed": f"exit code {process.returncode}: {process.stderr.strip()[-500:]}"}
            )
        except subprocess.TimeoutExpired:
            failure = {"failed": f"took more than {options.seconds:g} s"}
        outcome = failure or json.loads(process.stdout.splitlines()[-1])
        results[path.stem] = {"net": path.stem, **outcome}
        RESULTS.write_text("".join(json.dumps(results[net]) + "\n" for net in sorted(results)))
        print(f"{path.stem}: {outcome}", flush=True)


def read_results() -> list[dict[str, Any]]:
    """Return the results of all nets that have run."""
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def make_table(results: list[dict[str, Any]]) -> str:
    """Return the counts, and a Markdown table of the nets that do not agree in each engine, with the reasons."""
    run_results = [result for result in results if "failed" not in result]
    agreeing = Counter(name for result in run_results for name in ENGINES if result.get(name, {}).get("agrees"))
    titles = {"onnxruntime": "ONNX Runtime", "opencv5": "OpenCV 5"}
    counts = " and ".join(f"{agreeing[name]} in {titles[name]}" for name in ENGINES)
    lines = [f"Of {len(run_results)} public deploy nets, with drawn weights and inputs, {counts} agree with the net."]
    exceptions = [
        (result["net"], titles[name], outcome.get("refused") or _describe_difference(outcome))
        for result in run_results
        for name in ENGINES
        if (outcome := result.get(name)) and not outcome.get("agrees")
    ]
    exceptions += [(result["net"], "not run", result["failed"]) for result in results if "failed" in result]
    if exceptions:
        lines += ["", "| net | engine | reason |", "|---|---|---|"]
        lines += [f"| {net} | {engine} | {' '.join(reason.split())} |" for net, engine, reason in sorted(exceptions)]
    return "\n".join(lines) + "\n"


def _describe_difference(outcome: dict[str, Any]) -> str:
    if "moves" not in outcome:
        return str(outcome["text"])
    text = f"{outcome['text']}; inputs that move by {PERTURBATION:g} move the net's output by {outcome['moves']:.1e}"
    if "layer" not in outcome:
        return text
    return f"{text}; the net's {outcome['layer']} of the engine's bottoms differs by {outcome['of_bottoms']:.1e}"


def main() -> int:
    """Run or write; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="the nets")
    parser.add_argument("--engine", action="append", choices=ENGINES, help="one of them; all unless given")
    parser.add_argument("--max_params", type=float, default=60e6, help="parameters of the largest net")
    parser.add_argument("--seconds", type=float, default=600, help="that a net may take")
    parser.add_argument("--write", action="store_true", help="only write the table")
    parser.add_argument("--check", action="store_true", help="only compare the table with the results")
    parser.add_argument("--assess", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.engine = options.engine or list(ENGINES)
    if options.assess:
        print(json.dumps(assess(options.assess[0], options.assess[1:])))
        return 0
    if options.folder:
        run(options)
    elif not (options.write or options.check):
        parser.error("give a folder, --write or --check")
    text = replace_part(PAGE.read_text(), "scripts/check_deploy_exports.py", make_table(read_results()))
    if options.check:
        return int(text != PAGE.read_text())
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
