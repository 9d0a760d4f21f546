"""A self-contained HTML page of a net: data, layout library, scripts and style."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib.resources import files
from typing import Any

from ..errors import CaffejaxError

_ASSETS = files(__package__) / "assets"
LIBRARY = "dagre/dagre.min.js"
LAYOUT = "layout.js"
_SCRIPTS = (
    LAYOUT,
    *("tree.js", "nesting.js", "words.js", "elements.js", "sizes.js", "drawing.js"),
    *("camera.js", "panel.js", "search.js", "live.js", "controls.js", "view.js", "main.js"),
)


@cache
def asset(name: str) -> str:
    """Return the text of a file in the package's assets."""
    return (_ASSETS / name).read_text(encoding="utf-8")


def library() -> str:
    """Return the layout library with its licence, without the reference to its source map, which is not included."""
    text = asset(LIBRARY).partition("//# sourceMappingURL")[0]
    return f"/* dagre, https://github.com/dagrejs/dagre\n\n{asset('dagre/LICENSE')}*/\n{text}"


def page(net: dict[str, Any], live: bool = False) -> bytes:
    """Return the HTML page of a net.

    Names and text of the net cannot become markup or script: the data is JSON without `<`, scripts insert it as text,
    and the page's content security policy allows no other script.

    Args:
        net: the view from `to_json`.
        live: whether a server shows the page, which then polls for changes.
    """
    script = "\n".join(["(() => {", library(), *map(asset, _SCRIPTS), "})();"])
    style = asset("page.css")
    if "</script" in script.lower() or "<!--" in script or "</style" in style.lower():
        raise CaffejaxError("the package's own files are damaged; install caffejax anew")
    source = "self" if live else "none"
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        f"connect-src '{source}'; base-uri 'none'; form-action 'none'"
    )
    parts = {"policy": policy, "style": style, "net": in_html({"net": net, "live": live}), "script": script}
    return (asset("page.html") % parts).encode()


def in_html(value: Any) -> str:
    """Return ASCII JSON that is safe inside a script element."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
