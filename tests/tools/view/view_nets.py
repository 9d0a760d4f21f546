"""Nets for the tests of `caffejax view`: from the repository, hostile and invalid ones."""

from pathlib import Path
from random import Random

REPOSITORY = Path(__file__).parents[3]
CONFIGS = REPOSITORY / "configs"


def find_config(name: str) -> Path:
    return CONFIGS / name / "train_val.prototxt"


DATA = 'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 32 dim: 32 } } }'


def make_conv(name: str, bottom: str, settings: str = "num_output: 8 kernel_size: 1") -> str:
    fields = f'name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{name}"'
    return f"layer {{ {fields} convolution_param {{ {settings} }} }}"


INVALID_NET = (Path(__file__).parent / "wrong.prototxt").read_text()
# the layers that are wrong, each with a part of what is said of it, and those whose numbers are known all the same
PROBLEMS = {
    "conv1": "kernel_sise",
    "relu": "'ReLu'",
    "big": "kernel does not fit",
    "sum": "unknown bottom blob 'poool'",
}
VALID_LAYERS = {"data", "conv1", "side", "fine"}

HOSTILE_NAMES = (
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


def make_hostile_net() -> str:
    """Return a net whose names, types, blobs and strings attack pages."""
    names = [name.replace('"', "'") for name in HOSTILE_NAMES]
    layers = [
        f'layer {{ name: "{name}" type: "Python" bottom: "data" top: "{name}" '
        f'python_param {{ module: "{name}" layer: "{name}" param_str: "{name}" }} }}'
        for name in names
    ]
    types = [f'layer {{ name: "t{i}" type: "{name}" bottom: "data" top: "t{i}" }}' for i, name in enumerate(names)]
    return "\n".join([f'name: "{names[0]}"', DATA, *layers, *types])


def make_inception(count: int) -> str:
    """Return a chain of modules of four branches, each of 15 layers, with a residual connection around every third."""
    parts, bottom = [DATA, make_conv("stem", "data", "num_output: 16 kernel_size: 1")], "stem"
    for i in range(count):
        branches = []
        for name, num_steps in (("a", 1), ("b", 2), ("c", 2), ("d", 2)):
            source = bottom
            for step in range(num_steps):
                source, previous = f"m{i}/{name}{step}", source
                parts.append(make_conv(source, previous, "num_output: 4 kernel_size: 1"))
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


def make_irregular_net(count: int) -> str:
    """Return a TRAIN net with this many layers and no repeated block.

    A third of the layers add a blob from up to eight layers before.
    """
    data = DATA.replace("input_param", "include { phase: TRAIN } input_param")
    parts, blobs, rng = [data, make_conv("l0", "data")], ["l0"], Random(0)
    for i in range(1, count - 1):
        earlier_blob = rng.choice(blobs[-8:-1] or blobs)
        if rng.random() < 1 / 3:
            bottoms = f'bottom: "{blobs[-1]}" bottom: "{earlier_blob}"'
            parts.append(f'layer {{ name: "l{i}" type: "Eltwise" {bottoms} top: "l{i}" }}')
        else:
            parts.append(make_conv(f"l{i}", blobs[-1]))
        blobs.append(f"l{i}")
    return "\n".join(parts)
