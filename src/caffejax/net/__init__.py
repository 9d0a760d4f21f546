"""A net as pure functions over pytrees: init, apply, loss, freeze."""

from ..variables import Blobs, Outputs, Params, Variables
from .frozen import Frozen
from .net import Net

__all__ = ["Blobs", "Frozen", "Net", "Outputs", "Params", "Variables"]
