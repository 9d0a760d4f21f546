"""What is predicted for priors, and the priors, as blobs have them."""

from __future__ import annotations

from typing import Any

from ...errors import require
from ..dtypes import promote


def read_predictions(loc: Any, conf: Any, prior: Any, groups: int, classes: int) -> tuple[Any, Any, Any]:
    """Return locations (images, priors, groups, 4), scores (images, priors, classes), priors (2, priors, 4).

    The priors are boxes and variances.

    Raises:
        LayerError: for shapes that do not go together.
    """
    require(
        len(prior.shape) >= 3 and prior.shape[:2] == (1, 2) and prior.size % 8 == 0 < prior.size,
        f"bottom 2 must hold priors and their variances, (1, 2, priors * 4), not have shape {prior.shape}",
    )
    priors = prior.size // 8
    require(len(conf.shape) > 0, "bottom 1 must have a batch axis, but is a single number")
    images = conf.shape[0]
    for i, (x, each) in enumerate(((loc, groups * 4), (conf, classes))):
        require(
            len(x.shape) > 0 and x.shape[0] == images and x.size == images * priors * each,
            f"bottom {i} must hold {each} numbers for each of {priors} priors, ({images}, {priors * each}), "
            f"not have shape {x.shape}",
        )
    return (
        promote(loc).reshape(images, priors, groups, 4),
        promote(conf).reshape(images, priors, classes),
        promote(prior).reshape(2, priors, 4),
    )
