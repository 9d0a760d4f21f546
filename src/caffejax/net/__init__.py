"""A net as pure functions of pytrees: `init`, `apply`, `loss`, `freeze`."""

from ..inference.frozen_net import Frozen
from ..variables import Blobs, Outputs, Params, Variables
from .net import Net

__all__ = ["Blobs", "Frozen", "Net", "Outputs", "Params", "Variables"]
