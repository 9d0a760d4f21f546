"""Hooks of the documentation's site: the reference lists what is public, each example is a page, a viewer is live."""

import ast
import os
import re
import tempfile
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from caffejax.tools.view import write_view

REPOSITORY = Path(__file__).parents[1]
PACKAGE = REPOSITORY / "src" / "caffejax"
REFERENCE_MODULES = {  # the two doors for Caffe's and OpenCV's own names have pages of their own
    "caffejax": PACKAGE / "__init__.pyi",
    "caffejax.export": PACKAGE / "export" / "__init__.pyi",
}


def list_public_names(stub: Path) -> list[str]:
    """Each name that a stub lists, without private ones, in the order of the alphabet."""
    imports = [node for node in ast.parse(stub.read_text()).body if isinstance(node, ast.ImportFrom)]
    names = [alias.name for node in imports for alias in node.names if not alias.name.startswith("_")]
    return sorted(names, key=str.lower)


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
        write_view(os.path.relpath(net), viewer)  # the page shows the path
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
    for module, stub in REFERENCE_MODULES.items():
        entries = [f"::: {module}.{name}" for name in list_public_names(stub)]
        markdown = "\n\n".join([markdown, f"## {module}", *entries])
    return markdown
