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
REFERENCE_STUBS = {  # by prefix; the two doors for Caffe's and OpenCV's own names have pages of their own
    "": PACKAGE / "__init__.pyi",
    "export.": PACKAGE / "export" / "__init__.pyi",
}
_NAMES = re.compile(r"^`[\w.]+`(?:\s`[\w.]+`)*$", re.MULTILINE)  # a paragraph of names


def list_public_names() -> list[str]:
    """Each name that a stub lists, in the order of the alphabet."""
    names = []
    for prefix, stub in REFERENCE_STUBS.items():
        imports = [node for node in ast.parse(stub.read_text()).body if isinstance(node, ast.ImportFrom)]
        names += [prefix + alias.name for node in imports for alias in node.names]
    return sorted(names, key=str.lower)


def list_reference_names(markdown: str) -> list[str]:
    """Each name on the page of the reference, in its order."""
    return [name for paragraph in _NAMES.findall(markdown) for name in paragraph.replace("`", "").split()]


def write_reference(markdown: str) -> str:
    """Replace the names on the page by their docstrings; add names that it lacks."""
    missing = sorted(set(list_public_names()) - set(list_reference_names(markdown)))
    markdown += "\n" + " ".join(f"`{name}`" for name in missing) + "\n"
    return _NAMES.sub(lambda names: "\n\n".join(f"::: caffejax.{n}" for n in list_reference_names(names[0])), markdown)


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
    return write_reference(markdown) if source == "reference.md" else markdown
