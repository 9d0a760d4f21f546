"""What layers refuse, and in which words."""

import pytest

from caffejax.errors import GraphError
from caffejax.net import Net

REFUSED = [
    ("PReLU", "", [(3,)], "needs a bottom with a channel axis"),
    ("PReLU", "", [(2, 3, 1, 1, 1)], "has 5 axes"),
    ("Clip", "", [(2, 3)], "must give min and max"),
    ("Exp", "exp_param { base: 0 }", [(2,)], "base must be positive, or -1 for e, not 0"),
    ("Log", "log_param { base: -2 }", [(2,)], "base must be positive, or -1 for e, not -2"),
    ("Log", "log_param { base: 1 }", [(2,)], "no logarithm to base 1"),
    ("Bias", "", [(2, 3, 4), (2,)], "dimension mismatch"),
    ("Bias", "bias_param { axis: 2 }", [(2, 3, 4), (4, 2)], "dimension mismatch"),
    ("Bias", "bias_param { axis: 2 num_axes: 2 }", [(2, 3, 4)], "extends past the bottom"),
    ("Scale", "scale_param { num_axes: -2 }", [(2, 3, 4)], "num_axes must be -1"),
    ("Scale", "scale_param { axis: 3 }", [(2, 3, 4)], "axis 3 is out of range"),
    ("Scale", "scale_param { bias_term: true }", [(2, 3, 4), (4,)], "dimension mismatch"),
    ("Eltwise", "", [(2, 3), (2, 4)], r"bottom 1 has shape \(2, 4\), bottom 0 \(2, 3\)"),
    ("Eltwise", "eltwise_param { coeff: 1 }", [(2,), (2,)], "one coeff for each bottom or none: 1 for 2"),
    ("Eltwise", "eltwise_param { operation: PROD coeff: 1 coeff: 1 }", [(2,), (2,)], "only with operation SUM"),
    ("BatchNorm", "", [(4,)], "needs a bottom with a channel axis"),
    ("BatchNorm", "param { lr_mult: 1 }", [(4, 2)], "lr_mult must be 0"),
    ("MVN", "", [(1, 2, 3, 4, 5)], "has 5 axes"),
    ("EuclideanLoss", "", [(2, 3), (3, 3)], "same first dimension"),
    ("EuclideanLoss", "", [(2, 3), (2, 4)], "same dimension"),
    ("EuclideanLoss", "", [(2, 1, 1, 1, 3), (2, 3)], "has 5 axes"),
    ("ContrastiveLoss", "", [(2, 3), (2, 4), (2,)], "same channels"),
    ("ContrastiveLoss", "", [(2, 3, 2), (2, 3, 2), (2,)], "height and width are not 1"),
    ("ContrastiveLoss", "", [(2, 3), (2, 3), (2, 2)], "one number for each of the 2 pairs"),
    ("HingeLoss", "", [(2, 3), (3,)], "same first dimension"),
    ("MultinomialLogisticLoss", "", [(2, 3), (2, 2)], "one label per example"),
    ("InfogainLoss", "", [(2, 3), (2,)], "the infogain matrix is missing"),
    ("InfogainLoss", "", [(2, 3), (2,), (3, 2)], "infogain matrix must be 3 x 3"),
    ("InfogainLoss", "", [(2, 3), (2, 2), (3, 3)], "number of labels must match number of predictions"),
    ("InfogainLoss", "loss_param { normalize: true }", [(2, 3), (2,), (3, 3)], "normalize is deprecated"),
    ("InfogainLoss", 'infogain_loss_param { source: "nowhere" }', [(2, 3), (2,)], "nowhere.*no such file"),
    ("SigmoidCrossEntropyLoss", "", [(3, 4), (3, 5)], "same count"),
    ("Embed", "embed_param { num_output: 3 }", [(5,)], "input_dim must be positive"),
    ("Embed", "embed_param { input_dim: 3 }", [(5,)], "num_output must be positive"),
]


def net(kind: str, text: str, shapes: list[tuple[int, ...]], tops: int = 1) -> str:
    """A net of Input layers b0, b1, ... and one layer named "layer" with tops t0, t1, ..."""
    inputs = [
        f'layer {{ name: "b{i}" type: "Input" top: "b{i}" input_param {{ shape {{ '
        f"{' '.join(f'dim: {n}' for n in shape)} }} }} }}"
        for i, shape in enumerate(shapes)
    ]
    bottoms = " ".join(f'bottom: "b{i}"' for i in range(len(shapes)))
    named = " ".join(f'top: "t{i}"' for i in range(tops))
    return "\n".join([*inputs, f'layer {{ name: "layer" type: "{kind}" {bottoms} {named} {text} }}'])


@pytest.mark.parametrize(("kind", "text", "shapes", "words"), REFUSED, ids=[f"{r[0]}-{r[3]}" for r in REFUSED])
def test_refuses(kind: str, text: str, shapes: list[tuple[int, ...]], words: str) -> None:
    with pytest.raises(GraphError, match=words) as caught:
        Net(net(kind, text, shapes))
    assert f"layer 'layer' ({kind})" in str(caught.value)
