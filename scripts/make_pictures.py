"""Make the documentation's pictures, docs/pictures/*.png, from runs of the configurations, without a network.

python scripts/make_pictures.py                    # all, some minutes on two cores
python scripts/make_pictures.py memory gradcheck   # some

Pages in a browser are drawn by the system's Chromium with playwright. `scripts/make_benchmark_page.py` makes the charts
of benchmarks.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
from chart_style import new_figure, save_figure, save_quantized
from diagrams import bfloat16, pipeline, pooling
from matplotlib.patches import Rectangle
from PIL import Image
from solver_pictures import lr_policies, same_as_caffe

import caffejax
from caffejax.cli import main as caffejax_command
from caffejax.cli.demo_pictures import OBJECT_NAMES, draw_pictures
from caffejax.core.checkpoints.caffemodel import write_caffemodel
from caffejax.core.data.loader import Loader
from caffejax.core.schema import read_net, read_solver
from caffejax.core.solver.intermediates import extract_features
from caffejax.tools.metrics import JsonLines
from caffejax.tools.view import write_view

REPOSITORY = Path(__file__).resolve().parents[1]
CONFIGS = REPOSITORY / "configs"
SOLVER = CONFIGS / "digits" / "lenet_solver.prototxt"
NET = CONFIGS / "digits" / "lenet_train_test.prototxt"
GOOGLENET, RESNET = (CONFIGS / name / "train_val.prototxt" for name in ("googlenet", "resnet50"))
PIXELS = """
layer { name: "data" type: "Input" top: "data" top: "label" include { phase: TRAIN }
  input_param { shape { dim: 8 dim: 3 dim: 96 dim: 96 } shape { dim: 8 dim: 96 dim: 96 } } }
layer { name: "data" type: "Input" top: "data" include { phase: TEST }
  input_param { shape { dim: 1 dim: 3 dim: 96 dim: 96 } } }
LAYERS
layer { name: "score" type: "Convolution" bottom: "BOTTOM" top: "score"
  convolution_param { num_output: 4 kernel_size: 1 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "score" bottom: "label" top: "loss" include { phase: TRAIN } }
"""
DILATED = """
layer { name: "convDILATION" type: "Convolution" bottom: "BOTTOM" top: "convDILATION" convolution_param { num_output: 32
  kernel_size: 3 pad: DILATION dilation: DILATION weight_filler { type: "msra" } } }
layer { name: "bnDILATION" type: "BatchNorm" bottom: "convDILATION" top: "convDILATION" }
layer { name: "scaleDILATION" type: "Scale" bottom: "convDILATION" top: "convDILATION" scale_param { bias_term: true } }
layer { name: "reluDILATION" type: "ReLU" bottom: "convDILATION" top: "convDILATION" }
"""
OPENED_BLOCK = """([name, block]) => {
  const view = caffejaxView;
  view.choose({layer: view.phase.layers.findIndex((layer) => layer.name === name)});
  view.camera.scale = 0.95;
  view.camera.reveal(view.places.get(block), true);
}"""


def run_command(*arguments: object) -> str:
    """Run a command of `caffejax`; return what it prints."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        code = caffejax_command(list(map(str, arguments)))
    if code:
        raise SystemExit(f"caffejax {' '.join(map(str, arguments))}: exit code {code}")
    return output.getvalue()


@cache
def train_digits(rate: float = 0.01) -> tuple[Path, Path]:
    """Train LeNet on the digits; return the files of its metrics and weights."""
    param = read_solver(SOLVER)
    param.base_lr, param.display, param.test_interval, param.snapshot = rate, 10, 50, 0
    param.snapshot_prefix = f"lr_{rate}"
    solver = caffejax.Solver(param, file=SOLVER)
    metrics = Path(f"learning rate {rate}.metrics.jsonl")
    solver.callbacks.append(JsonLines(metrics))
    solver.solve()
    solver.close()
    return metrics, Path(f"lr_{rate}_iter_{param.max_iter}.caffemodel")


def draw_training_curves() -> None:
    """Draw training curves by `caffejax plot`."""
    logs = [train_digits(rate)[0] for rate in (0.01, 0.001)]
    run_command("plot", *logs, "--out=plot.png", "--smooth=9", "--log_loss")
    save_quantized(Path("plot.png"), "plot_digits")


def draw_filters() -> None:
    """Draw filters by `caffejax draw`."""
    run_command("draw", NET, f"--weights={train_digits()[1]}", "--filters", "--size=400", "--out=filters.png")
    save_quantized(Path("filters.png"), "filters_digits")


def draw_features() -> None:
    """Draw feature maps by `caffejax draw`."""
    weights = f"--weights={train_digits()[1]}"
    run_command("draw", NET, weights, "--blob=conv1", "--example=2", "--size=400", "--out=features.png")
    save_quantized(Path("features.png"), "features_digits")


def draw_confusion_matrix() -> None:
    """Draw which digits the trained LeNet takes for which."""
    net = caffejax.Net(NET, "TEST")
    loader = Loader(net.graph)
    counts = np.zeros((10, 10), int)
    num_batches = -(-(loader.num_examples or 0) // net.graph.blobs["data"].shape[0])
    batches = extract_features(net, net.load(train_digits()[1]), ["ip2", "label"], loader)
    for _, batch in zip(range(num_batches), batches, strict=False):
        np.add.at(counts, (np.asarray(batch["label"], int), np.asarray(batch["ip2"]).argmax(1)), 1)
    loader.close()
    figure, (axes,) = new_figure(width=5, height=4.6)
    axes.imshow(np.log1p(counts), cmap="GnBu")
    for (true, predicted), count in np.ndenumerate(counts):
        if count:
            axes.text(predicted, true, count, ha="center", va="center", color="white" if true == predicted else "black")
    axes.set(xlabel="predicted", ylabel="digit", xticks=range(10), yticks=range(10))
    axes.set_title(f"LeNet on {counts.sum()} test digits: {np.trace(counts) / counts.sum():.2%} correct")
    axes.spines[:].set_visible(False)
    save_figure(figure, "confusion_digits")


def load_test_digits() -> tuple[np.ndarray, np.ndarray]:
    """Return the first test picture of each digit, uint8 (10, 1, 28, 28), and the labels."""
    loader = Loader(caffejax.Net(NET, "TEST").graph)
    batch = {name: np.asarray(blob) for name, blob in next(loader).items()}
    loader.close()
    first_indices = [int(np.flatnonzero(batch["label"] == digit)[0]) for digit in range(10)]
    return batch["data"][first_indices], batch["label"][first_indices]


def draw_digit() -> None:
    """Write a picture of a digit, which the first page classifies."""
    Image.fromarray(load_test_digits()[0][3, 0].repeat(4, 0).repeat(4, 1)).save("digit.png")
    save_quantized(Path("digit.png"), "digit", 256)


def draw_saliency() -> None:
    """Draw the gradient of the score of a digit by its pixels."""
    net = caffejax.Net(NET, "TEST")
    params, state = net.load(train_digits()[1])
    images, labels = load_test_digits()
    images = images / np.float32(256)  # as the data layer scales them

    def score(images: Any) -> Any:
        blobs, _ = net.apply(params, state, {"data": images, "label": labels}, blobs=["ip2"])
        return blobs["ip2"][np.arange(len(labels)), labels.astype(int)].sum()

    gradients = jax.jit(jax.grad(score))(images)
    figure, axes = new_figure(len(labels), rows=2, width=9, height=2.2)
    for index, ax in enumerate(axes):
        row, column = divmod(index, len(labels))
        if row:
            ax.imshow(np.abs(gradients[column, 0]), cmap="magma")
        else:
            ax.imshow(images[column, 0], cmap="gray")
        ax.axis("off")
    figure.suptitle("Digits, and how strongly each pixel moves the score of the right class", fontsize=10)
    save_figure(figure, "saliency_digits")


def draw_memory() -> None:
    """Draw the memory of training ResNet-50: by layer, and with layers recomputed."""
    batch, limits = 32, (None, 3, 2, 1.5)
    reports = [
        caffejax.report_memory(
            caffejax.Net(RESNET, "TRAIN", remat="auto" if gib else "none", memory_limit=gib and int(gib * 2**30)), batch
        )
        for gib in limits
    ]
    figure, (left, right) = new_figure(2, width=10, height=3.4)
    layers = reports[0].layers
    for name, label in {"activation_bytes": "activations", "parameter_bytes": "parameters"}.items():
        left.plot(np.cumsum([getattr(layer, name) or 0 for layer in layers]) / 2**20, label=label)
    left.set(xlabel="layer", ylabel="MiB", title=f"ResNet-50, {batch} images: summed up to each layer")
    left.legend()
    peaks = [report.training.peak / 2**30 for report in reports if report.training]
    num_recomputed = [report.training.num_recomputed for report in reports if report.training]
    fixed_gib = reports[0].training.fixed / 2**30 if reports[0].training else 0
    names = [f"limit {gib:g} GiB" if gib else "no limit" for gib in limits]
    right.bar(names, peaks, label="activations and their diffs")
    right.bar(names, fixed_gib, label="params, gradients, history, batch", color="C2")
    for position, (peak, count) in enumerate(zip(peaks, num_recomputed, strict=True)):
        right.text(
            position,
            peak,
            f"{peak:.2f}\n{count} of {len(layers)}\nrecomputed" if count else f"{peak:.2f}",
            ha="center",
            va="bottom",
            fontsize=8,
        )
    right.set(ylabel="GiB", title="Training, with --remat=auto", ylim=(0, max(peaks) * 1.25))
    right.legend(fontsize=8)
    save_figure(figure, "memory_resnet50")


def draw_gradcheck() -> None:
    """Draw the errors that `caffejax gradcheck` finds in LeNet."""
    rows = json.loads(run_command("gradcheck", NET, "--json"))["rows"]
    names = [f"{row['layer']}: {row['argument'].partition(' (')[0]}" for row in rows]
    figure, (axes,) = new_figure(height=0.3 * len(rows) + 1.1)
    for key, label in {
        "rule_autodiff": "rule against autodiff",
        "rule_differences": "rule against differences",
    }.items():
        errors = [max(row[key]["error"], 1e-17) if row[key] else np.nan for row in rows]
        axes.plot(errors, range(len(rows)), "o", label=label)
    axes.axvline(1e-6, color="gray", linestyle=":", label="tolerance of rule against autodiff")
    axes.set(
        xscale="log",
        yticks=range(len(rows)),
        yticklabels=names,
        xlabel="largest relative error in float64 (leftmost: 0)",
    )
    axes.grid(axis="y", alpha=0.3)
    axes.invert_yaxis()
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    save_figure(figure, "gradcheck_digits")


def draw_comparison() -> None:
    """Draw the error along depth by `caffejax compare`: ResNet-50's fast kernels against the reference."""
    run_command("dump", RESNET, "--phase=TRAIN", "--out=a.npz")
    run_command("compare", "a.npz", RESNET, "--kernels=reference", "--picture=error.png")
    save_quantized(Path("error.png"), "compare_resnet50")


def draw_detections() -> None:
    """Draw the boxes that the small SSD finds, trained by `caffejax demo`."""
    run_command("demo", "shapes", "demo")
    save_quantized(Path("demo/predicted/shapes_1.png"), "predict_shapes")


def draw_pixel_labels() -> None:
    """Draw labels of pixels by `caffejax predict`, of a small net of dilated convolutions that is trained on shapes."""
    layers, bottom = "", "data"
    for dilation in (1, 2, 4, 8, 16):
        layers += DILATED.replace("BOTTOM", bottom).replace("DILATION", str(dilation))
        bottom = f"conv{dilation}"
    Path("pixels.prototxt").write_text(PIXELS.replace("LAYERS", layers).replace("BOTTOM", bottom))
    images, labels = map(np.stack, zip(*map(_label_pixels, draw_pictures("shapes", 1000, seed=2)), strict=True))
    data = {"data": images.transpose(0, 3, 1, 2).astype(np.float32) / 128 - 1, "label": labels}
    settings = (
        'type: "Adam" base_lr: 0.005 lr_policy: "poly" power: 0.9 max_iter: 1500 snapshot_prefix: "pixels" display: 100'
    )
    solver = caffejax.Solver(f'net: "pixels.prototxt" {settings}', data=data)
    solver.solve()
    solver.close()
    import cv2

    example_images = [image for image, shapes in draw_pictures("shapes", 40, seed=3) if len(shapes) > 1][:4]
    for index, image in enumerate(example_images):
        cv2.imwrite(f"shown{index}.png", image)
    Path("names.txt").write_text("\n".join(("background", *OBJECT_NAMES["shapes"])))
    Path("labelled").mkdir()
    flags = "--mean=128,128,128", "--scale=0.0078125", "--labels=names.txt", "--out=labelled"
    files = [f"shown{index}.png" for index in range(len(example_images))]
    run_command("predict", "pixels.prototxt", *files, "--weights=pixels_iter_1500.caffemodel", *flags)
    figure, axes = new_figure(len(example_images), rows=2, width=8, height=4.1)
    for ax, file in zip(axes, [*files, *(f"labelled/{file}" for file in files)], strict=True):
        ax.imshow(cv2.imread(file)[..., ::-1], interpolation="nearest")
        ax.axis("off")
    save_figure(figure, "predict_pixels")


def _label_pixels(picture: tuple[np.ndarray, list[tuple[int, np.ndarray]]]) -> tuple[np.ndarray, np.ndarray]:
    """Return a picture and the labels of its pixels: those of a shape have the color of its center."""
    image, objects = picture
    labels = np.zeros(image.shape[:2], np.float32)
    for label, (x1, y1, x2, y2) in objects:
        box = np.s_[y1 : y2 + 1, x1 : x2 + 1]
        labels[box][(image[box] == image[(y1 + y2) // 2, (x1 + x2) // 2]).all(-1)] = label
    return image, labels


def draw_face() -> None:
    """Draw what MTCNN finds in a photograph, with its authors' weights, as tests/cpu/test_mtcnn.py does."""
    sys.path.append(str(REPOSITORY / "tests" / "end_to_end"))
    import test_mtcnn as mtcnn

    archive_path = REPOSITORY.parent / "shared" / "corpus" / "nets.zip"
    if not archive_path.exists():
        raise SystemExit(f"mtcnn_face.png needs {archive_path}, as the tests do")
    with zipfile.ZipFile(archive_path) as archive:
        texts = {name: archive.read(mtcnn.PUBLISHED.format(file)).decode() for name, file in mtcnn.FILES.items()}
    nets = {}
    for name, blobs in mtcnn.read_weights(texts).items():
        Path(f"{name}.prototxt").write_text(texts[name])
        write_caffemodel(f"{name}.caffemodel", read_net(f"{name}.prototxt"), blobs)
        nets[name] = mtcnn.load_net(texts[name], Path(f"{name}.caffemodel"))
    photograph = mtcnn.load_photograph()
    faces = mtcnn.find_faces(nets, photograph)
    figure, (axes,) = new_figure(width=3.2, height=3.2)
    axes.imshow(photograph)
    for (x1, y1, x2, y2), score, points in zip(faces.boxes, faces.scores, faces.landmarks, strict=True):
        axes.add_patch(Rectangle((x1, y1), x2 - x1, y2 - y1, fill=False, edgecolor="lime", linewidth=2))
        axes.text(x1, y1 - 6, f"{score:.3f}", color="lime", weight="bold")
        axes.plot(*points.T, "o", color="lime", markersize=4)
    axes.set(xlim=(90, 350), ylim=(270, 10))
    axes.axis("off")
    save_figure(figure, "mtcnn_face")


@contextlib.contextmanager
def screenshot_page(path: Path, width: int, height: int) -> Iterator[Any]:
    """Open a file in Chromium."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium")
    if program is None:
        raise SystemExit("needs Chromium: apt-get install chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": height})
        page.goto(path.absolute().as_uri())
        yield page
        page.screenshot(path="page.png")
        browser.close()


def draw_view() -> None:
    """Draw the page of `caffejax view`."""
    os.chdir(REPOSITORY)  # the page shows the path
    file = Path(tempfile.gettempdir()) / "googlenet.html"
    write_view(GOOGLENET.relative_to(REPOSITORY), file)
    os.chdir(file.parent)
    with screenshot_page(file, 1400, 800) as page:
        page.evaluate(OPENED_BLOCK, ["inception_4a/3x3", "inception_4a#0"])
    save_quantized(Path("page.png"), "view_googlenet")


def draw_graph() -> None:
    """Draw LeNet by `caffejax draw`."""
    run_command("draw", CONFIGS / "lenet" / "train_val.prototxt", "--phase=TRAIN", "--out=lenet.svg")
    with screenshot_page(Path("lenet.svg"), 1900, 200) as page:
        box = page.evaluate(
            "(({width, height}) => ({width, height}))(document.documentElement.getBoundingClientRect())"
        )
        page.set_viewport_size({name: int(size) + 1 for name, size in box.items()})
    save_quantized(Path("page.png"), "draw_lenet", 32)


def draw_check_report() -> None:
    """Draw the page of `caffejax check --html`, of a net that loads and one that does not."""
    folder = Path("models")
    folder.mkdir()
    shutil.copytree(CONFIGS / "digits", folder / "digits")
    (folder / "old_fork.prototxt").write_text(NET.read_text().replace('"ReLU"', '"RELU6X"'))
    with contextlib.suppress(SystemExit):  # it says that one does not load
        run_command("check", folder, "--html=report.html")
    with screenshot_page(Path("report.html"), 900, 662) as page:
        page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    save_quantized(Path("page.png"), "check_report", 64)


# by name, the functions that write docs/pictures/*.png
PICTURE_FUNCTIONS: dict[str, Callable[[], None]] = {
    "plot_digits": draw_training_curves,
    "filters_digits": draw_filters,
    "features_digits": draw_features,
    "digit": draw_digit,
    "confusion": draw_confusion_matrix,
    "saliency": draw_saliency,
    "shapes": draw_detections,
    "pixels": draw_pixel_labels,
    "same_as_caffe": same_as_caffe,
    "memory": draw_memory,
    "gradcheck": draw_gradcheck,
    "compare": draw_comparison,
    "view": draw_view,
    "graph": draw_graph,
    "report": draw_check_report,
    "lr_policies": lr_policies,
    "pipeline": pipeline,
    "bfloat16": bfloat16,
    "pooling": pooling,
    "face": draw_face,
}


def main() -> None:
    """Make the pictures that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "names",
        nargs="*",
        choices=[[], *PICTURE_FUNCTIONS],
        default=[],
        metavar="NAME",
        help=", ".join(PICTURE_FUNCTIONS),
    )
    with tempfile.TemporaryDirectory() as folder:
        for name in parser.parse_args().names or PICTURE_FUNCTIONS:
            os.chdir(folder)
            PICTURE_FUNCTIONS[name]()
        os.chdir(REPOSITORY)


if __name__ == "__main__":
    sys.exit(main())
