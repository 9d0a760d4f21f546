"""Core reads only settings that BVLC Caffe has; forks/ reads those of forks, or the upgrade of nets renames them.

The oracle is the list of fields of BVLC Caffe's caffe.proto.
"""

import ast
import csv
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from caffejax import core
from caffejax.core.layers.registry import plain_type
from caffejax.core.schema import caffe_pb2
from golden_cases import ACCEPTED_CASES, GOLDEN, is_fork_case
from layer_suite import IMAGE, layer_case
from layer_suite.field_reads import list_reads_of_cases, list_reads_of_recorded

CORE = Path(core.__file__).parent
FOLDERS = ("checkpoints", "data", "graph", "layers", "ops", "parallel", "program")

# fields of forks that core reads, since layers of any type may have them, and no variant of a type could read them
SHARED = {
    ("FillerParameter", "alpha"): "a number of msra",
    ("FillerParameter", "scale"): "a number of msra",
    ("LayerParameter", "freeze_learning"): "params of all types have a learning rate",
    ("LossParameter", "pre_fixed_normalizer"): "losses share their normalization",
    **{
        ("TransformationParameter", name): "data layers share crops; BVLC's are squares"
        for name in ("crop_h", "crop_w", "crop_height", "crop_width")
    },
}
# names in the code that are also fields of forks, where no message is meant
WORDS = {"cache", "config", "maximum", "minimum", "num_parts", "random", "relu", "seed", "subtract"}


def read_bvlc_fields() -> set[tuple[str, str]]:
    """Return the pairs (message, field) of BVLC Caffe's schema."""
    with (GOLDEN / "schema" / "bvlc_caffe.tsv").open() as lines:
        return {(row["message_or_enum"], row["field"]) for row in csv.DictReader(lines, delimiter="\t")}


BVLC_FIELDS = read_bvlc_fields()
FORK_FIELDS = {  # that forks added to BVLC's messages
    (message.name, field.name)
    for message in caffe_pb2.DESCRIPTOR.message_types_by_name.values()
    for field in message.fields
    if message.name in {name for name, _ in BVLC_FIELDS}
} - BVLC_FIELDS
# names that can only be fields of forks
FORK_NAMES = {name for _, name in FORK_FIELDS} - {name for _, name in BVLC_FIELDS} - WORDS


def iterate_names(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the names of attributes, and strings that are names, with their lines."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            yield node.attr, node.lineno
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value, node.lineno


def test_no_name_of_a_fork_s_field_stands_in_core() -> None:
    shared_names = {name for _, name in SHARED}
    found = [
        f"{path.relative_to(CORE)}:{line}: {name}"
        for folder in FOLDERS
        for path in sorted((CORE / folder).rglob("*.py"))
        for name, line in iterate_names(path)
        if name in FORK_NAMES - shared_names
    ]
    assert not found, "\n".join(found)


def test_the_lists_tell_fields_of_forks_from_bvlc_s() -> None:
    assert {"hole", "ceil_mode", "min_is_better", "temperature", "rnn_param"} <= FORK_NAMES
    assert not {"dilation", "round_mode", "top_k"} & FORK_NAMES
    assert set(SHARED) <= FORK_FIELDS


BVLC_CASES: dict[str, list[tuple[Path, str]]] = {}
for _case in ACCEPTED_CASES:
    if not is_fork_case(_case):
        BVLC_CASES.setdefault(_case["type"], []).append((_case["path"].with_suffix(".prototxt"), _case["phase"]))


@pytest.mark.parametrize("name", BVLC_CASES)
def test_bvlc_s_types_read_only_bvlc_s_fields(name: str, recording_process: ProcessPoolExecutor) -> None:
    """In all recorded cases, also where a field of a fork has the name of one of BVLC's."""
    assert not plain_type(name).signature.fork_settings
    reads = recording_process.submit(list_reads_of_recorded, BVLC_CASES[name]).result()
    folders = tuple(f"{CORE / folder}/" for folder in FOLDERS)
    core_reads = {(message.rpartition(".")[2], field) for file, message, field in reads if file.startswith(folders)}
    assert ("LayerParameter", "name") in core_reads
    assert core_reads - BVLC_FIELDS <= set(SHARED)


def test_reads_of_a_fork_s_fields_are_seen(recording_process: ProcessPoolExecutor) -> None:
    case = layer_case("LRN", "lrn_param { local_size: 3 }", IMAGE)
    reads = recording_process.submit(list_reads_of_cases, [case]).result()
    assert ("caffe.LRNParameter", "local_size") in reads
    assert ("caffe.DropoutParameter", "dropout_ratio") not in reads
