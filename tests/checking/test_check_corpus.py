"""Which nets of forks load, of those that people have published."""

import json
import zipfile
from pathlib import Path

import pytest

from caffejax.checking import check_files

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"

pytestmark = [
    pytest.mark.skipif(not CORPUS.is_dir(), reason=f"needs the corpus of public nets in {CORPUS}, which is absent"),
    pytest.mark.slow,
    pytest.mark.long,
]

# no Caffe loads these: they begin with a blob that is left to the reader
FRAGMENTS = (
    *("combine_softmax_contrastive", "normalized_Euclidean_contrastive", "normalized_Euclidean_triplet"),
    "scaled_cosine_softmax",
)


def test_nearly_all_nets_of_forks_load(tmp_path: Path) -> None:
    index = json.loads((CORPUS / "index.json").read_text())
    forks = [e["file"] for e in index if e["file"].startswith("nets") and not e["loads_in_bvlc"]]
    forks = [f for f in forks if not any(word in f for word in FRAGMENTS)]
    with zipfile.ZipFile(CORPUS / "nets.zip") as archive:
        archive.extractall(tmp_path, forks)
    failed = {
        report.file: [str(f) for f in (*report.findings, *(f for p in report.phases for f in p.findings))]
        for report in check_files([str(tmp_path / name) for name in forks])
        if not report.loads
    }
    assert len(failed) <= 0.05 * len(forks), json.dumps(failed, indent=1)
