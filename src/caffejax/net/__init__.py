"""A net as pure functions over pytrees: init, apply, loss."""

from .net import Net
from .variables import Blobs, Outputs, Params, Variables

__all__ = ["Blobs", "Net", "Outputs", "Params", "Variables"]
