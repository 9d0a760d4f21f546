"""Nets as drawings: the graph that is drawn, pages that show it, and a server that follows a file as it is edited."""

from .net_view import SeenNet, page_of, see, write_page
from .server import serve

__all__ = ["SeenNet", "page_of", "see", "serve", "write_page"]
