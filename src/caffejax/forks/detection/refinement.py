"""RefineDet's refinement of priors: a first stage tells where objects are, and moves the priors there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...base.errors import require
from ...core.layers.dtype_policy import promote
from ...core.layers.helpers import array_namespace
from .boxes import decode_offsets


class Refinement(NamedTuple):
    """Predictions of the first stage for each prior: JAX or NumPy arrays, or None where the layer has no such bottom.

    Attributes:
        objectness: (images, priors), the probability of an object.
        offsets: (images, priors, 4), the offsets of the refined priors from the priors.
    """

    objectness: Any = None
    offsets: Any = None

    @classmethod
    def parse(cls, bottoms: Sequence[Any], first: int, num_images: Any, num_priors: Any) -> Refinement:
        """Return the refinement that the last bottoms of a layer hold; there may be no such bottoms.

        Args:
            bottoms: probabilities of background and object, (images, priors * 2), and offsets, (images, priors * 4).
            first: the position of the first of them in the layer.
            num_images: the number of images.
            num_priors: the number of priors.

        Raises:
            LayerError: if a shape does not match.
        """
        contents = (("the background's and the object's probability", 2), ("4 offsets", 4))
        for i, (x, (content, count)) in enumerate(zip(bottoms, contents, strict=False)):
            require(
                len(x.shape) > 0 and x.shape[0] == num_images and x.size == num_images * num_priors * count,
                f"bottom {first + i} must contain {content} for each of {num_priors} priors, "
                f"({num_images}, {num_priors * count}), but has shape {x.shape}",
            )
        objectness = promote(bottoms[0]).reshape(num_images, num_priors, 2)[..., 1] if bottoms else None
        offsets = promote(bottoms[1]).reshape(num_images, num_priors, 4) if len(bottoms) > 1 else None
        return cls(objectness, offsets)

    def refine_priors(self, code_type: str, boxes: Any, variances: Any) -> Any:
        """Return the refined priors of each image, (images, priors, 4). See `decode_offsets` for the arguments."""
        return boxes if self.offsets is None else decode_offsets(code_type, self.offsets, boxes, variances)

    def has_object(self, threshold: float) -> Any:
        """Return the mask (images, priors) of the priors whose objectness is at least `threshold`, or True for all."""
        return True if self.objectness is None else self.objectness >= threshold

    def mask_scores(self, threshold: float, scores: Any) -> Any:
        """Return class scores, (images, priors, classes): 1 for class 0 and 0 for others where objectness is too low.

        As in the fork, NaN is not too low, and class 0 is meant whatever background_label_id is.
        """
        if self.objectness is None:
            return scores
        xp = array_namespace(scores)
        no_object = (xp.arange(scores.shape[2]) == 0).astype(scores.dtype)
        return xp.where((self.objectness < threshold)[..., None], no_object, scores)
