"""Nets as drawings: the graph that is drawn, pages that show it, and a server that follows a file as it is edited."""

from .seen import SeenNet, see
from .served import serve
from .written import page_of, write_page

__all__ = ["SeenNet", "page_of", "see", "serve", "write_page"]
