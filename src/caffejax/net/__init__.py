"""A net as pure functions over pytrees: init, apply, loss."""

from .net import Blobs, Net, Outputs, Params, Variables

__all__ = ["Blobs", "Net", "Outputs", "Params", "Variables"]
