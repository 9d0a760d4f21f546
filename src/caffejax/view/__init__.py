"""Nets as drawings: the layer graph, HTML pages that show it, and a server that follows edits of a file."""

from .net_view import NetView, load_view, page_of, write_page
from .server import serve

__all__ = ["NetView", "load_view", "page_of", "serve", "write_page"]
