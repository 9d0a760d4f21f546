"""Hooks of the documentation's site: the reference lists what is public, each example is a page, a viewer is live."""

import ast
import os
import re
import tempfile
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from caffejax.tools.view import write_page

REPOSITORY = Path(__file__).parents[1]
PUBLIC_STUB = REPOSITORY / "src" / "caffejax" / "__init__.pyi"


def list_public_names() -> list[str]:
    """Each public name with the module that it comes from, such as caffejax.core.solver.Solver; not private ones."""
    imports = [node for node in ast.parse(PUBLIC_STUB.read_text()).body if isinstance(node, ast.ImportFrom)]
    return [f"caffejax.{node.module}.{alias.name}" for node in imports for alias in node.names if node.level == 1]


def on_files(files: Files, config: Any) -> Files:
    """Add a page for each script in examples/, and their list; and the page of `caffejax view` for GoogLeNet."""
    folder = REPOSITORY / "examples"
    pages = {"README.md": (folder / "README.md").read_text()}
    for script in folder.glob("*.py"):
        pages[f"{script.stem}.md"] = f"# {script.name}\n\n```python\n{script.read_text()}```\n"
    for name, text in pages.items():
        files.append(File.generated(config, f"examples/{name}", content=text))
    with tempfile.TemporaryDirectory() as temporary_folder:
        viewer = Path(temporary_folder) / "googlenet.html"
        net = REPOSITORY / "configs" / "googlenet" / "train_val.prototxt"
        write_page(os.path.relpath(net), viewer)  # the page shows the path
        files.append(File.generated(config, "viewer/googlenet.html", content=viewer.read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Have links to examples lead to their pages; list the public names on the page of the reference."""
    source = page.file.src_uri
    if source == "examples/README.md":
        return re.sub(r"\]\((\w+)\.py\)", r"](\1.md)", markdown)
    markdown = re.sub(r"\]\(\.\./examples/(\w+)\.(py|md)\)", r"](examples/\1.md)", markdown)
    if source != "reference.md":
        return markdown
    names = sorted(
        (name for name in list_public_names() if "._" not in name), key=lambda name: name.rpartition(".")[2].lower()
    )
    return "\n\n".join([markdown, *(f"::: {name}" for name in names)])
