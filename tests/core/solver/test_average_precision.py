"""Average precision against loops that follow its definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caffejax.base.errors import SolverError
from caffejax.core.solver.detection_scores import AP_VERSIONS, average_precision

DETECTIONS = st.lists(st.tuples(st.integers(0, 8), st.sampled_from([(1, 0), (0, 1), (0, 0)])), max_size=25)


def compute_curve(detections: list[tuple[float, float, float]], num_positives: int) -> list[tuple[float, float]]:
    """Precision and recall after each detection, the best first; equals in the order given."""
    points, num_hits, num_false_alarms = [], 0, 0
    for _, t, f in sorted(detections, key=lambda d: -d[0]):
        if t or f:
            num_hits, num_false_alarms = num_hits + int(t), num_false_alarms + int(f)
            points.append((num_hits / (num_hits + num_false_alarms), num_hits / num_positives))
    return points


def compute_reference(detections: list[tuple[float, float, float]], num_positives: int, version: str) -> float:
    points, total, previous_recall = compute_curve(detections, num_positives), 0.0, 0.0
    if version.endswith("point"):
        steps = int(version.removesuffix("point")) - 1
        for step in range(steps + 1):
            total += max((p for p, r in points if np.float64(np.float32(r)) >= step / steps), default=0) / (steps + 1)
        return total
    for i, (precision, recall) in enumerate(points):
        best = precision if version == "Integral" else max(p for p, _ in points[i:])
        total += best * (recall - previous_recall)
        previous_recall = recall
    return total


@pytest.mark.parametrize("version", AP_VERSIONS)
@given(DETECTIONS, st.integers(0, 5))
def test_versions_equal_their_definitions(
    version: str, scored_flags: list[tuple[int, tuple[int, int]]], num_missed: int
) -> None:
    detections = [(score / 8, float(t), float(f)) for score, (t, f) in scored_flags]
    num_positives = sum(int(t) for _, t, _ in detections) + num_missed
    expected = compute_reference(detections, num_positives, version) if num_positives else 0
    assert average_precision(detections, num_positives, version) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("version", "expected"), [("11point", 1), ("MaxIntegral", 1), ("Integral", 1)])
def test_perfect_detections_score_one(version: str, expected: float) -> None:
    assert average_precision([(0.9, 1, 0), (0.5, 1, 0)], 2, version) == pytest.approx(expected)


def test_values_computed_by_hand_are_returned() -> None:
    detections = [(0.9, 1, 0), (0.8, 0, 1), (0.7, 0, 0), (0.6, 1, 0)]  # precisions 1, 1/2, 2/3 at recalls 1/2, 1/2, 1
    assert average_precision(detections, 2, "Integral") == pytest.approx(0.5 + 0.5 * 2 / 3)
    assert average_precision(detections, 2, "MaxIntegral") == pytest.approx(0.5 + 0.5 * 2 / 3)
    assert average_precision(detections, 2, "11point") == pytest.approx((6 * 1 + 5 * 2 / 3) / 11)


@pytest.mark.parametrize(("num_hits", "tenths"), [(3, 4), (7, 7), (9, 9), (10, 11)])
def test_recalls_of_tenths_are_float32(num_hits: int, tenths: int) -> None:
    assert average_precision([(1, 1, 0)] * num_hits, 10, "11point") == pytest.approx(tenths / 11)


def test_nothing_detected_scores_zero() -> None:
    assert average_precision([], 3, "Integral") == 0
    assert average_precision([(0.5, 0, 1)], 0, "11point") == 0


def test_other_versions_are_refused() -> None:
    with pytest.raises(SolverError, match="11point, 101point, MaxIntegral, Integral, not 'COCO'"):
        average_precision([], 1, "COCO")
