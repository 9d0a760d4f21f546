"""Run workflows of public Caffe projects on caffejax, as scripts/real_projects.toml lists them, and print a table.

    python scripts/real_projects.py CHECKOUTS [--only WORDS] [--seconds 120] [--work FOLDER] [--verbose]

CHECKOUTS is a folder of git checkouts named owner+name, such as BVLC+caffe. A checkout stays as it is: its files are
copied, edited by the rules of the list, and get the programs that `caffejax tools` writes. Weights are random, and data
are made here: scikit-learn's digits, and pictures with boxes. A workflow is skipped if its checkout is absent, or a
Python package that it needs. The exit code is 1 if a workflow fails.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import caffejax
from caffejax.base.errors import CaffejaxError
from caffejax.pycaffe.shim import FOLDER as SHIM

LIST = Path(__file__).with_suffix(".toml")
_CLASSES = ("cat", "dog", "person", "car")
_NUMPY_TYPE_ALIASES = ("float", "int", "bool", "object")  # NumPy's former names of Python's types
_SCIPY_MISC = Path("build", "python", "scipy_misc.py")  # in a copy, functions of images that SciPy had in scipy.misc
_STAMP = ".caffejax-edits"  # the file in a copy that names the data and the edits that are made


class Result(NamedTuple):
    """A row of the table."""

    project: str
    workflow: str
    outcome: str
    seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--only", default="", help="run workflows whose project and name contain these words")
    parser.add_argument("--seconds", type=float, default=120, help="the most that a workflow may take")
    parser.add_argument("--work", type=Path, help="where the copies are made and left (default: a temporary folder)")
    parser.add_argument("--verbose", action="store_true", help="print the output of each workflow that fails")
    options = parser.parse_args()
    work = options.work or Path(tempfile.mkdtemp(prefix="real-projects-"))
    results = []
    for result in run_all(options, work.resolve()):
        print(f"{result.project:44} {result.workflow:40} {result.seconds:6.1f} s  {result.outcome}", flush=True)
        results.append(result)
    if not options.work:
        shutil.rmtree(work, ignore_errors=True)
    executed = [result for result in results if not result.outcome.startswith("absent")]
    num_ok = sum(result.outcome.startswith("ok") for result in executed)
    print(
        f"{num_ok} of {len(executed)} workflows of {len({result.project for result in executed})} projects go through"
    )
    for place in ("caffejax", "the project", "caffejax or the project"):
        failed = [f"{r.project}: {r.workflow}" for r in executed if r.outcome.startswith(f"FAILS in {place}:")]
        if failed:
            print(f"failed in {place}: " + "; ".join(failed))
    return int(num_ok < len(executed))


def run_all(options: argparse.Namespace, work: Path) -> Iterator[Result]:
    listing = tomllib.loads(LIST.read_text())
    pending_workflows: dict[str, list[dict[str, Any]]] = {}  # workflows of a project whose edits are still to be made
    for flow in listing["workflow"]:
        project, name = flow["project"], flow["name"]
        pending_workflows.setdefault(project, []).append(flow)
        if not all(word in f"{project} {name}" for word in options.only.split()):
            continue
        checkout = options.checkouts / project.replace("/", "+")
        if not checkout.is_dir():
            yield Result(project, name, "absent: there is no checkout", 0)
            continue
        start = time.monotonic()
        copy = work / checkout.name
        try:
            for folder in (copy, *(work / needed.replace("/", "+") for needed in flow.get("needs", ()))):
                if not folder.exists():
                    copy_checkout(options.checkouts / folder.name, folder)
            for pending_workflow in pending_workflows.pop(project):
                edit_files(pending_workflow, copy, work / "home")
            outcome = run_workflow(flow, copy, work / "home", options)
        except (CaffejaxError, subprocess.SubprocessError, OSError, LookupError, ValueError) as error:
            outcome = f"FAILS: {type(error).__name__}: {error}"
        commit = read_commit(checkout)
        commit_note = "" if commit == listing["projects"][project] else f" (at commit {commit[:9]}, not the listed one)"
        yield Result(project, name, outcome + commit_note, time.monotonic() - start)


def read_commit(checkout: Path) -> str:
    """Return the commit of a checkout, or "unknown"."""
    process = subprocess.run(["git", "-C", checkout, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return "unknown" if process.returncode else process.stdout.strip()


def copy_checkout(checkout: Path, copy: Path) -> None:
    """Copy a checkout without its history, and write Caffe's programs and the command `python` into the copy."""
    shutil.copytree(checkout, copy, symlinks=True, ignore=shutil.ignore_patterns(".git", "build"))
    subprocess.run([sys.executable, "-m", "caffejax", "tools", copy], check=True, capture_output=True)
    folder = copy / "build" / "bin"
    folder.mkdir()
    for name in ("python", "python2", "python2.7", "python3"):
        script = f'#!/bin/sh\ncase "$1" in\n*.py) exec {sys.executable} -m caffejax run "$@" ;;\nesac\n'
        (folder / name).write_text(f'{script}exec {sys.executable} "$@"\n')
        (folder / name).chmod(0o755)
    (copy / _SCIPY_MISC).parent.mkdir()
    (copy / _SCIPY_MISC).write_text(_SCIPY_MISC_CODE)


def edit_files(flow: dict[str, Any], copy: Path, home: Path) -> None:
    """Make the data of a workflow, and edit its files, in the copy of the checkout, unless an earlier run has."""
    home.mkdir(exist_ok=True)
    stamp = copy / _STAMP
    applied_edits = stamp.read_text().splitlines() if stamp.exists() else []
    for name in flow.get("data", ()):
        if name not in applied_edits:
            _DATA_MAKERS[name](copy, home)
            applied_edits.append(name)
    if flow["name"] not in applied_edits:
        for edit in flow.get("edits", ()):
            for path in sorted(file for pattern in edit["files"] for file in copy.glob(pattern)):
                _EDIT_RULES[edit["rule"]](path, edit)
        applied_edits.append(flow["name"])
    stamp.write_text("\n".join(applied_edits))


def run_workflow(flow: dict[str, Any], copy: Path, home: Path, options: argparse.Namespace) -> str:
    """Run the commands of a workflow in the copy of the checkout, and return the outcome."""
    for net, weights in flow.get("weights", {}).items():
        if not (copy / weights).exists():
            write_weights(copy / net, copy / weights)
    path = os.pathsep.join([str(copy / "build" / "bin"), str(copy / "build" / "tools"), os.environ.get("PATH", "")])
    packages = [SHIM, Path(caffejax.__file__).parents[1], copy / "python", copy / _SCIPY_MISC.parent]
    environment = {**os.environ, "PATH": path, "HOME": str(home), "MPLBACKEND": "Agg", "CAFFE_ROOT": str(copy)}
    environment |= {"PYTHONPATH": os.pathsep.join(map(str, packages)), "JAX_PLATFORMS": "cpu"}
    environment["CAFFEJAX_DEVICE"] = "cpu"  # also where a script says -gpu 0
    script = "set -e\n" + "\n".join(flow["run"])
    folder = copy / flow.get("folder", ".")
    with subprocess.Popen(
        ["bash", "-c", script],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=options.seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return _describe_failure(f"takes more than {options.seconds:g} s", output, options)
    if process.returncode != flow.get("exit_code", 0):
        return _describe_failure(f"exit code {process.returncode}", output, options)
    return _describe_failure(problem, output, options) if (problem := find_wrong_result(flow, folder, output)) else "ok"


def _describe_failure(reason: str, output: str, options: argparse.Namespace) -> str:
    if options.verbose:
        print("\n".join(f"    {line}" for line in output.splitlines()[-40:]))
    lines = [line for line in output.splitlines() if line.strip()]
    if package := re.search(r"No module named '((?!caffe)\w+)", output):
        return f"absent: the Python package {package[1]}"
    return f"FAILS in {find_place(output)}: {reason}; {lines[-1].strip()[:150] if lines else 'no output'}"


def find_place(output: str) -> str:
    """Say where a workflow failed: in caffejax, if it stopped the commands, or in the project's own code."""
    package = str(Path(caffejax.__file__).parent)
    frames = re.findall(r'^ *File "(.+?)", line \d+', output, re.MULTILINE)
    has_message = re.search(r"^(caffejax|F\d{4}.*\]|E\d{4}.*\])[: ]", output, re.MULTILINE)
    if has_message or (frames and frames[-1].startswith(package)):
        return "caffejax"
    return "the project" if frames else "caffejax or the project"


def find_wrong_result(flow: dict[str, Any], folder: Path, output: str) -> str:
    """Return what is wrong with the results of a workflow, or an empty string."""
    if "output" in flow and not re.search(flow["output"], output):
        return f"nothing in the output is {flow['output']!r}"
    if missing := [name for name in flow.get("files", ()) if not list(folder.glob(name))]:
        return f"there is no file {missing[0]}"
    for number in flow.get("numbers", ()):
        matches = re.findall(number["pattern"], output)
        if not matches:
            return f"nothing in the output is {number['pattern']!r}"
        if not abs(float(matches[-1]) - number["value"]) <= number["tolerance"]:
            return f"{number['pattern']!r} is {matches[-1]}, not {number['value']} within {number['tolerance']}"
    return ""


def to_python3(path: Path, edit: dict[str, Any]) -> None:
    """Translate a script by 2to3, which Python had until 3.12; the package fissix is 2to3 for later ones."""
    if edit.get("tabs"):  # mixed with spaces
        path.write_text(path.read_text(errors="surrogateescape").expandtabs(8), errors="surrogateescape")
    module = "lib2to3" if sys.version_info < (3, 13) else "fissix"
    exclude_flags = ["-x", edit["except"]] if "except" in edit else []
    command = [sys.executable, "-W", "ignore", "-m", module, "-w", "-n", *exclude_flags, path]
    subprocess.run(command, check=True, capture_output=True)


def to_numpy2(path: Path, edit: dict[str, Any]) -> None:
    """Write Python's types instead of NumPy's former names of them, and `tobytes` for its former name."""
    text = path.read_text()
    text = text.replace(".tostring()", ".tobytes()")
    for name in _NUMPY_TYPE_ALIASES:
        text = re.sub(rf"\bnp\.{name}\b", name, text)
    path.write_text(text)


def to_scipy1(path: Path, edit: dict[str, Any]) -> None:
    """Take the functions of images that SciPy had in scipy.misc from the module that `copy_checkout` writes."""
    text = re.sub(r"\bfrom scipy import misc\b", "import scipy_misc as misc", path.read_text())
    path.write_text(re.sub(r"\bscipy\.misc\b", "scipy_misc", text))


_SCIPY_MISC_CODE = """
import numpy as np
import PIL.Image


def imread(name):
    return np.asarray(PIL.Image.open(name))


def imresize(image, size, interp="bilinear"):
    size = size if isinstance(size, tuple) else (np.array(image.shape[:2]) * size).astype(int)
    filter = getattr(PIL.Image.Resampling, interp.upper())
    return np.asarray(PIL.Image.fromarray(image).resize((int(size[1]), int(size[0])), filter))


def imsave(name, image):
    if image.dtype != np.uint8:
        image = (image - image.min()) / (np.ptp(image) or 1) * 255
    PIL.Image.fromarray(image.astype(np.uint8)).save(name)
"""


def replace_pattern(path: Path, edit: dict[str, Any]) -> None:
    """Replace a regular expression; it is an error if nothing matches."""
    text, count = re.subn(edit["pattern"], edit["with"], path.read_text(errors="surrogateescape"))
    if not count:
        raise ValueError(f"{path.name} has nothing like {edit['pattern']!r} to edit")
    path.write_text(text, errors="surrogateescape")


def set_fields(path: Path, edit: dict[str, Any]) -> None:
    """Set fields of a prototxt, wherever they are in it, or add them at its end."""
    text = path.read_text()
    for name, value in edit["fields"].items():
        text, count = re.subn(rf"\b{name}\s*:\s*(\"[^\"]*\"|\S+)", f"{name}: {value}", text)
        text += "" if count else f"\n{name}: {value}\n"
    path.write_text(text)


def to_script(path: Path, edit: dict[str, Any]) -> None:
    """Write the code of a notebook as a script beside it; lines that begin with ! run in a shell, % has no effect."""
    code = ["import matplotlib; matplotlib.use('Agg')", "from caffejax import pycaffe; pycaffe.install()"]
    notebook = json.loads(path.read_text())
    for cell in notebook["cells"] if "cells" in notebook else notebook["worksheets"][0]["cells"]:
        lines = cell.get("source", cell.get("input", []))
        for line in "".join(lines).splitlines() if cell["cell_type"] == "code" else ():
            indent, code_line = line[: len(line) - len(line.lstrip())], line.lstrip()
            if code_line.startswith("!"):
                code.append(f"{indent}import subprocess; subprocess.run({code_line[1:]!r}, shell=True)")
            else:
                code.append(f"{indent}pass" if code_line.startswith("%") else line)
    path.with_suffix(".py").write_text("\n".join(code) + "\n")


_EDIT_RULES: dict[str, Callable[[Path, dict[str, Any]], None]] = {
    "python3": to_python3,
    "numpy2": to_numpy2,
    "scipy1": to_scipy1,
    "replace": replace_pattern,
    "set": set_fields,
    "notebook": to_script,
}


def write_weights(net: Path, weights: Path) -> None:
    """Write random weights of a net. Convolutions without a filler get MSRA's, so that activations stay finite."""
    import jax

    from caffejax.core.schema import read_net

    text = read_net(net)
    for layer in text.layer:
        param = layer.inner_product_param if layer.type == "InnerProduct" else layer.convolution_param
        if layer.type in ("Convolution", "Deconvolution", "InnerProduct") and not param.HasField("weight_filler"):
            param.weight_filler.type = "msra"
    model = caffejax.Net(text, "TEST")
    weights.parent.mkdir(parents=True, exist_ok=True)
    model.save(*model.init(jax.random.key(0)), weights)


def make_digits(copy: Path, home: Path) -> None:
    """Write scikit-learn's digits, enlarged to 28 x 28, as MNIST's files to data/mnist, and as CIFAR-10's."""
    import cv2
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = np.stack([cv2.resize(i.astype(np.float32) * 15.9, (28, 28)) for i in digits.images]).astype(np.uint8)
    labels = digits.target.astype(np.uint8)
    for name, rows_slice in ("train", slice(0, 1500)), ("t10k", slice(1500, None)):
        for file_kind, array in ("images-idx3", images[rows_slice]), ("labels-idx1", labels[rows_slice]):
            head = np.array([0x800 + array.ndim, *array.shape], ">u4").tobytes()
            (copy / "data" / "mnist" / f"{name}-{file_kind}-ubyte").write_bytes(head + array.tobytes())
    cifar_images = np.repeat(np.pad(images, ((0, 0), (2, 2), (2, 2)))[:, None], 3, 1).reshape(len(images), -1)
    rows = np.concatenate([labels[:, None], cifar_images], 1)
    for n, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        (copy / "data" / "cifar10" / f"{name}.bin").write_bytes(rows[200 * n : 200 * (n + 1)].tobytes())


def make_voc(copy: Path, home: Path) -> None:
    """Write noise with rectangles as a small VOCdevkit to ~/data."""
    import cv2

    rng = np.random.default_rng(0)
    for year in ("VOC2007", "VOC2012"):
        root = home / "data" / "VOCdevkit" / year
        for folder in ("JPEGImages", "Annotations", "ImageSets/Main"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        names = [f"{year[-1]}{n:05d}" for n in range(12)]
        for part, part_names in ("trainval", names[:8]), ("test", names[8:]):
            (root / "ImageSets" / "Main" / f"{part}.txt").write_text("".join(f"{name}\n" for name in part_names))
        for name in names:
            image = rng.integers(0, 256, (120, 160, 3), np.uint8)
            objects = ""
            for _ in range(2):
                (x, y), (w, h) = rng.integers(1, 60, 2).tolist(), rng.integers(20, 60, 2).tolist()
                cv2.rectangle(image, (x, y), (x + w, y + h), (0, 0, 255), -1)
                box = f"<xmin>{x}</xmin><ymin>{y}</ymin><xmax>{x + w}</xmax><ymax>{y + h}</ymax>"
                class_name = _CLASSES[int(rng.integers(4))]
                objects += f"<object><name>{class_name}</name><difficult>0</difficult><bndbox>{box}</bndbox></object>"
            size = "<size><width>160</width><height>120</height><depth>3</depth></size>"
            cv2.imwrite(str(root / "JPEGImages" / f"{name}.jpg"), image)
            (root / "Annotations" / f"{name}.xml").write_text(f"<annotation>{size}{objects}</annotation>")


def make_pictures(copy: Path, home: Path) -> None:
    """Write pictures to the copy's folder `pictures`, with lists of them: names with a class, pairs with label maps."""
    import cv2

    folder, rng = copy / "pictures", np.random.default_rng(1)
    folder.mkdir(exist_ok=True)
    for n in range(12):
        for name, value in (f"{n}.jpg", rng.integers(0, 256, (8, 8, 3))), (f"{n}.png", rng.integers(0, 11, (8, 8))):
            pixels = value.astype(np.uint8)
            flag = cv2.INTER_NEAREST if name.endswith("png") else cv2.INTER_CUBIC
            cv2.imwrite(str(folder / name), cv2.resize(pixels, (480, 360), interpolation=flag))
    (folder / "classes.txt").write_text("".join(f"{n}.jpg {n % 2}\n" for n in range(12)))
    (folder / "pairs.txt").write_text("".join(f"{folder}/{n}.jpg {folder}/{n}.png\n" for n in range(12)))


_DATA_MAKERS = {"digits": make_digits, "voc": make_voc, "pictures": make_pictures}

if __name__ == "__main__":
    sys.exit(main())
