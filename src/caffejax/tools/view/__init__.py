"""Drawings of nets: the layer graph, HTML pages that show it, and a server that reloads an edited file."""

from .net_view import NetView, load_view, make_page, write_view
from .server import serve

__all__ = ["NetView", "load_view", "make_page", "serve", "write_view"]
