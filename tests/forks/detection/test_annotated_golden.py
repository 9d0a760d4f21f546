"""AnnotatedData equals the SSD fork's: resized images within one grey level, boxes within 1e-6."""

import json
from pathlib import Path

import numpy as np
import pytest

from caffejax.core.layers.row_padding import num_valid_rows, strip_padding

FOLDER = Path(__file__).parent / "recorded" / "data" / "photos_a"
CASES = {case["case"]: case for case in json.loads((FOLDER / "manifest.json").read_text())}

TRANSFORM_SCALES = {"crop_center": 0.017}


def test_every_recorded_case_is_tested():
    recorded_names = {path.stem for path in FOLDER.glob("*.prototxt")}
    assert set(CASES) == recorded_names == {"warp", "pad", "fit_small", "crop_center", "plain_sampler"}


@pytest.mark.parametrize("name", CASES)
def test_batches_equal_the_forks_batches(name, monkeypatch, open_source):
    monkeypatch.chdir(FOLDER)
    expected = np.load(f"{name}.npz")
    source = open_source(Path(f"{name}.prototxt"))
    for k in range(CASES[name]["batches"]):
        data, label = next(source)
        expected_data = expected[f"batch/{k}/data"]
        # another libjpeg may round otherwise
        gray_levels = 4 if name == "plain_sampler" else 1
        np.testing.assert_allclose(data, expected_data, rtol=0, atol=gray_levels * TRANSFORM_SCALES.get(name, 1) + 1e-5)
        assert np.mean(data != expected_data) < 0.01
        rows = strip_padding(label, max(1, num_valid_rows(label)))
        assert rows.shape == expected[f"batch/{k}/label"].shape
        np.testing.assert_allclose(rows, expected[f"batch/{k}/label"], atol=1e-6)
