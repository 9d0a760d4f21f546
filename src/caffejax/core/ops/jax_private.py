"""The names of JAX without a public counterpart: all that caffejax uses.

JAX may move or remove them in any release, so each user has a slower form that needs only public names.
"""

from __future__ import annotations

from importlib import import_module
from operator import attrgetter
from typing import Any, Literal

Subject = Literal["trace settings", "transfer to CPUs", "store of texts"]

_NAMES: dict[Subject, tuple[str, str]] = {
    "trace settings": ("jax._src.config", "trace_context"),
    "transfer to CPUs": ("jax._src.lib", "xla_client.batched_device_put"),  # the function behind jax.device_put
    "store of texts": ("jax._src.distributed", "global_state.client"),  # of the coordination service
}


def find_private(subject: Subject) -> Any:
    """Return what this JAX has for a subject, or None: the name is missing, or its value is None."""
    module, attributes = _NAMES[subject]
    try:
        return attrgetter(attributes)(import_module(module))
    except (ImportError, AttributeError):
        return None
