"""The HTML page of a net. It is self-contained: the data, the layout library, the scripts and the style are in it."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib.resources import files
from typing import Any

from ...base.errors import CaffejaxError

_ASSETS = files(__package__) / "assets"
LIBRARY_PATH = "dagre/dagre.min.js"
LAYOUT_SCRIPT = "layout.js"
_SCRIPTS = (
    LAYOUT_SCRIPT,
    *("tree.js", "nesting.js", "format.js", "elements.js", "sizes.js", "drawing.js"),
    *("camera.js", "panel.js", "search.js", "poll.js", "controls.js", "view.js", "main.js"),
)


@cache
def read_asset(name: str) -> str:
    """Return the text of the file `name` in the assets of this package."""
    return (_ASSETS / name).read_text(encoding="utf-8")


def read_library() -> str:
    """Return the JavaScript of the layout library dagre with its licence, without the reference to its source map."""
    text = read_asset(LIBRARY_PATH).partition("//# sourceMappingURL")[0]
    return f"/* dagre, https://github.com/dagrejs/dagre\n\n{read_asset('dagre/LICENSE')}*/\n{text}"


def render_page(net: dict[str, Any], is_live: bool = False) -> bytes:
    """Return the HTML page of a net.

    Names and texts of the net cannot become markup or script, because the data is JSON without `<`, the page's scripts
    insert it as text, and the page's content security policy forbids other scripts.

    Args:
        net: the view from `to_json`.
        is_live: True if a server provides the page, which then polls the server for changes.
    """
    script = "\n".join(["(() => {", read_library(), *map(read_asset, _SCRIPTS), "})();"])
    style = read_asset("page.css")
    if "</script" in script.lower() or "<!--" in script or "</style" in style.lower():
        raise CaffejaxError("the scripts or styles in the caffejax package are damaged; reinstall caffejax")
    connect_source = "self" if is_live else "none"
    policy = (
        f"default-src 'none'; script-src '{_compute_hash(script)}'; style-src '{_compute_hash(style)}'; img-src data:; "
        f"connect-src '{connect_source}'; base-uri 'none'; form-action 'none'"
    )
    parts = {"policy": policy, "style": style, "net": escape_json({"net": net, "live": is_live}), "script": script}
    return (read_asset("page.html") % parts).encode()


def escape_json(value: Any) -> str:
    """Return a value as ASCII JSON without `<`, `>` and `&`, which is safe inside a script element."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _compute_hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
