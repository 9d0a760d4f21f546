"""A local server that shows a net in browsers and reloads the net file after each edit."""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import Any, cast

from ...base.config import NetConfig
from ...base.errors import CaffejaxError, Problem
from .html_page import escape_json, render_page
from .net_view import load_view, to_json

HOST = "127.0.0.1"


class _FileWatcher:
    """The view of a net file, which is reloaded when the file changes."""

    def __init__(self, file: Path, level: int, stages: Sequence[str], config: NetConfig) -> None:
        self._file = file
        self._load = lambda: to_json(load_view(file, level, stages, config))
        self._lock = threading.Lock()
        self._stamp: object = None
        self._net: dict[str, Any] = {}

    def get_net(self) -> dict[str, Any]:
        """Return the view of the file's current contents, as JSON-compatible values.

        Raises:
            CaffejaxError: if the file does not exist or is not text.
        """
        with self._lock:
            try:
                status = self._file.stat()
                stamp: object = (status.st_mtime_ns, status.st_size, status.st_ino)
            except OSError:
                stamp = None
            if stamp is None or stamp != self._stamp:
                self._net = self._load()
                self._stamp = stamp
            return self._net


def serve(
    file: Path,
    port: int = 0,
    level: int = 0,
    stages: Sequence[str] = (),
    on_listening: Callable[[ThreadingHTTPServer], object] = lambda server: None,
    config: NetConfig = NetConfig(),
) -> None:
    """Show a net in browsers on this machine until the process is interrupted.

    Args:
        file: a prototxt, which may be edited while the server runs.
        port: the port, or 0 for any free port.
        level, stages: the level and stages of the net state.
        on_listening: a function that is called with the server once the server listens.
        config: how data layers read data files, if these exist.

    Raises:
        SchemaError: if the prototxt does not exist at the start or is not text.
        CaffejaxError: if the port is in use.
    """
    watcher = _FileWatcher(file, level, stages, config)
    watcher.get_net()

    class Handler(_Handler):
        file_watcher = watcher

    try:
        server = _Server((HOST, port), Handler)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CaffejaxError(
            Problem(f"cannot listen on {HOST}:{port}: {reason}; choose a different port with --port")
        ) from error
    with server:
        on_listening(server)
        server.serve_forever(poll_interval=0.2)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def server_bind(self) -> None:
        """Bind to the address, but skip the slow look-up of the machine's network name, which HTTPServer does."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = HOST, self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore connections that browsers closed early; report other errors."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Handler of requests for the page and for the net as JSON.

    Pages of other sites cannot read the responses, because requests with a different host name are refused.
    """

    file_watcher: _FileWatcher
    timeout = 30
    server_version, sys_version = "caffejax", ""

    def do_GET(self) -> None:
        port = cast(tuple[str, int], self.server.server_address)[1]
        if self.headers.get("Host", "").lower() not in (f"{HOST}:{port}", f"localhost:{port}"):
            return self._answer(403, b"this server only accepts requests from browsers on this machine", "text/plain")
        if self.path not in ("/", "/net.json"):
            return self._answer(404, b"not found; open / for the page of the net", "text/plain")
        try:
            net = self.file_watcher.get_net()
        except CaffejaxError as error:
            return self._answer(500, str(error).encode(errors="replace"), "text/plain; charset=utf-8")
        if self.path == "/":
            return self._answer(200, render_page(net, is_live=True), "text/html; charset=utf-8")
        content = escape_json(net).encode()
        etag = f'"{hashlib.sha256(content).hexdigest()}"'
        if self.headers.get("If-None-Match") == etag:
            return self._answer(304, b"", "application/json", etag)
        return self._answer(200, content, "application/json", etag)

    def _answer(self, status: int, content: bytes, content_type: str, etag: str | None = None) -> None:
        self.send_response(status)
        headers = {
            "Content-Type": content_type,
            "Content-Length": str(len(content)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Content-Security-Policy": "frame-ancestors 'none'",
        }
        for name, value in {**headers, **({"ETag": etag} if etag else {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, because a page polls every second."""
