"""Tests of ContrastiveLoss, EuclideanLoss and HingeLoss."""

from caffejax import Net
from layer_nets import net_text
from layer_suite import LABELS, MATRIX, layer_case, properties, recorded

test_recorded = recorded("ContrastiveLoss", "EuclideanLoss", "HingeLoss")
test_properties = properties(
    layer_case("ContrastiveLoss", "contrastive_loss_param { margin: 3 }", MATRIX, MATRIX, LABELS),
    layer_case("EuclideanLoss", "", MATRIX, MATRIX),
    layer_case("HingeLoss", "hinge_loss_param { norm: L2 }", MATRIX, LABELS, classes=5),
)


def test_force_backward_with_labels_of_contrastive_loss() -> None:
    net = Net("force_backward: true\n" + net_text("ContrastiveLoss", "", [(2, 3), (2, 3), (2,)]))
    assert net.graph.layer("layer").bottom_need_backward == (True, True, False)
    net.graph.check_backward()
