"""`TextStore`, for a JAX that hides the client of its coordination service; see `ops.jax_private`."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any
from xmlrpc.client import ServerProxy
from xmlrpc.server import SimpleXMLRPCServer

import jax
import numpy as np
from jax.experimental import multihost_utils

_ADDRESS_LENGTH = 256  # bytes, at most
_POLL_SECONDS = 0.02


class TextStore:
    """Texts by key that processes share, served by process 0: the methods of JAX's client that `coordination` uses.

    All processes must make it together.
    """

    def __init__(self) -> None:
        address = ""
        if jax.process_index() == 0:
            server = SimpleXMLRPCServer(("", 0), logRequests=False)
            server.register_instance(_Texts())
            threading.Thread(target=server.serve_forever, daemon=True, name="caffejax-texts").start()
            address = f"http://{socket.gethostname()}:{server.server_address[1]}"
        code = np.frombuffer(address.encode().ljust(_ADDRESS_LENGTH), np.uint8)
        self._address = bytes(np.asarray(multihost_utils.broadcast_one_to_all(code))).decode().strip()

    def key_value_set(self, key: str, text: str, allow_overwrite: bool = False) -> None:
        """Store a text.

        Raises:
            JaxRuntimeError: if the key has a text and `allow_overwrite` is False, or process 0 cannot be reached.
        """
        if not self._call("write", key, text, allow_overwrite):
            raise jax.errors.JaxRuntimeError(f"ALREADY_EXISTS: {key}")

    def key_value_dir_get(self, key: str) -> list[tuple[str, str]]:
        """Return `(key, text)` of all keys that start with `key`.

        Raises:
            JaxRuntimeError: if process 0 cannot be reached.
        """
        return [(name, text) for name, text in self._call("list", key)]

    def blocking_key_value_get(self, key: str, milliseconds: int) -> str:
        """Return a text, once it is stored.

        Raises:
            JaxRuntimeError: if it is not stored in that time, or process 0 cannot be reached.
        """
        end = time.monotonic() + milliseconds / 1000
        while time.monotonic() < end:
            for name, text in self.key_value_dir_get(key):
                if name == key:
                    return text
            time.sleep(_POLL_SECONDS)
        raise jax.errors.JaxRuntimeError(f"DEADLINE_EXCEEDED: {key}")

    def _call(self, method: str, *arguments: str | bool) -> Any:
        try:
            with ServerProxy(self._address) as server:  # threads must not share one
                return getattr(server, method)(*arguments)
        except OSError as error:
            raise jax.errors.JaxRuntimeError(f"UNAVAILABLE: process 0 cannot be reached: {error}") from error


class _Texts:
    """The texts, in process 0. The server makes one call at a time."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def write(self, key: str, text: str, allow_overwrite: bool) -> bool:
        if key in self._texts and not allow_overwrite:
            return False
        self._texts[key] = text
        return True

    def list(self, key: str) -> list[list[str]]:
        return [[name, text] for name, text in sorted(self._texts.items()) if name.startswith(key)]
