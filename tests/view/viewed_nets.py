"""Nets to look at: of the repository, hostile ones, and ones that are wrong."""

from pathlib import Path
from random import Random

REPOSITORY = Path(__file__).parents[2]
CONFIGS = REPOSITORY / "configs"


def config(name: str) -> Path:
    return CONFIGS / name / "train_val.prototxt"


DATA = 'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 32 dim: 32 } } }'


def conv(name: str, bottom: str, settings: str = "num_output: 8 kernel_size: 1") -> str:
    wiring = f'name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{name}"'
    return f"layer {{ {wiring} convolution_param {{ {settings} }} }}"


WRONG = (Path(__file__).parent / "wrong.prototxt").read_text()
# the layers that are wrong, each with a part of what is said of it, and those whose numbers are known all the same
MESSAGES = {
    "conv1": "kernel_sise",
    "relu": "'ReLu'",
    "big": "kernel does not fit",
    "sum": "unknown bottom blob 'poool'",
}
SOUND = {"data", "conv1", "side", "fine"}

SPELLS = (
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    "<!--<script>",
    "{{constructor.constructor('window.hacked = 1')()}}",
    "';window.hacked=1;//",
    "]]>&amp;<svg onload=window.hacked=1>",
    "\\000\\001\\033[2J\\r",
    "\u202etxt.exe\u2066",
    "https://example.com/x.png",
    "constructor",
    "__proto__",
    "x" * 3000,
)


def hostile_net() -> str:
    """Return a net whose names, types, blobs and strings attack pages."""
    quoted = [spell.replace('"', "'") for spell in SPELLS]
    layers = [
        f'layer {{ name: "{spell}" type: "Python" bottom: "data" top: "{spell}" '
        f'python_param {{ module: "{spell}" layer: "{spell}" param_str: "{spell}" }} }}'
        for spell in quoted
    ]
    types = [f'layer {{ name: "t{i}" type: "{spell}" bottom: "data" top: "t{i}" }}' for i, spell in enumerate(quoted)]
    return "\n".join([f'name: "{quoted[0]}"', DATA, *layers, *types])


def inception(count: int) -> str:
    """A chain of modules of four branches, each of 15 layers, with a residual connection round every third."""
    parts, bottom = [DATA, conv("stem", "data", "num_output: 16 kernel_size: 1")], "stem"
    for i in range(count):
        branches = []
        for name, steps in (("a", 1), ("b", 2), ("c", 2), ("d", 2)):
            source = bottom
            for step in range(steps):
                source, before = f"m{i}/{name}{step}", source
                parts.append(conv(source, before, "num_output: 4 kernel_size: 1"))
                parts.append(f'layer {{ name: "{source}/relu" type: "ReLU" bottom: "{source}" top: "{source}" }}')
            branches.append(source)
        bottoms = " ".join(f'bottom: "{b}"' for b in branches)
        parts.append(f'layer {{ name: "m{i}/out" type: "Concat" {bottoms} top: "m{i}/out" }}')
        if i % 3 == 2:
            parts.append(
                f'layer {{ name: "sum{i}" type: "Eltwise" bottom: "m{i}/out" bottom: "{bottom}" top: "sum{i}" }}'
            )
        bottom = f"sum{i}" if i % 3 == 2 else f"m{i}/out"
    return "\n".join(parts)


def irregular_net(count: int) -> str:
    """A net of that many layers, for TRAIN, in which nothing repeats.

    A third of them add a blob from up to eight layers before.
    """
    data = DATA.replace("input_param", "include { phase: TRAIN } input_param")
    parts, blobs, draw = [data, conv("l0", "data")], ["l0"], Random(0)
    for i in range(1, count - 1):
        before = draw.choice(blobs[-8:-1] or blobs)
        if draw.random() < 1 / 3:
            bottoms = f'bottom: "{blobs[-1]}" bottom: "{before}"'
            parts.append(f'layer {{ name: "l{i}" type: "Eltwise" {bottoms} top: "l{i}" }}')
        else:
            parts.append(conv(f"l{i}", blobs[-1]))
        blobs.append(f"l{i}")
    return "\n".join(parts)
