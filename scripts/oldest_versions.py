"""Print the oldest versions that pyproject.toml allows, as constraints for pip.

    python scripts/oldest_versions.py >oldest.txt && pip install --constraint oldest.txt ".[export,plot]" pytest

They have wheels for Python 3.11.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
TOOLS = ("dev", "shim")  # extras without bounds that users meet


def oldest_versions() -> list[str]:
    """The lower bounds of all that the package and its extras need: `name==version`."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    extras = project["optional-dependencies"].items()
    needs = [*project["dependencies"], *(need for extra, needs in extras if extra not in TOOLS for need in needs)]
    bounds = {re.sub(r"\[.*?\]", "", need.split(";")[0]).strip() for need in needs}
    return sorted(bound.replace(">=", "==") for bound in bounds if "=" in bound)


if __name__ == "__main__":
    print("\n".join(oldest_versions()))
