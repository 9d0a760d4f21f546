"""Hooks of the documentation's site: the reference page lists what `src/caffejax/__init__.pyi` makes public."""

import ast
from pathlib import Path
from typing import Any

PUBLIC = Path(__file__).parents[1] / "src" / "caffejax" / "__init__.pyi"


def public_names() -> list[str]:
    """Each public name with the module that it comes from, such as caffejax.solvers.Solver; private modules' not."""
    imports = [node for node in ast.parse(PUBLIC.read_text()).body if isinstance(node, ast.ImportFrom)]
    return [f"caffejax.{node.module}.{alias.name}" for node in imports for alias in node.names if node.level == 1]


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Add an entry for each public name to the page of the reference."""
    if page.file.src_uri != "reference.md":
        return markdown
    names = sorted(
        (name for name in public_names() if "._" not in name), key=lambda name: name.rpartition(".")[2].lower()
    )
    return "\n\n".join([markdown, *(f"::: {name}" for name in names)])
