"""Print the oldest versions that pyproject.toml allows, as constraints for pip.

    python scripts/oldest_versions.py >oldest.txt && pip install --constraint oldest.txt ".[export,plot]" pytest

They have wheels for Python 3.11.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
TOOL_EXTRAS = ("dev", "shim")  # extras without bounds that users meet


def list_oldest_versions() -> list[str]:
    """The lower bounds of all that the package and its extras need: `name==version`."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    extras = project["optional-dependencies"].items()
    requirements = [
        *project["dependencies"],
        *(requirement for extra, requirements in extras if extra not in TOOL_EXTRAS for requirement in requirements),
    ]
    bounds = {re.sub(r"\[.*?\]", "", requirement.split(";")[0]).strip() for requirement in requirements}
    return sorted(bound.replace(">=", "==") for bound in bounds if "=" in bound)


if __name__ == "__main__":
    print("\n".join(list_oldest_versions()))
