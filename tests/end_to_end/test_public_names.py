"""The names that `caffejax` offers, which its stub lists."""

import subprocess
import sys

import pytest

import caffejax


@pytest.mark.parametrize("name", caffejax.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(caffejax, name) is not None
    assert name in dir(caffejax)


def test_unknown_names_raise() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        caffejax.nonsense  # noqa: B018


def test_importing_it_is_quick_as_it_imports_no_jax() -> None:
    code = "import sys, caffejax; sys.exit(bool({'jax', 'numpy', 'google.protobuf'} & sys.modules.keys()))"
    subprocess.run([sys.executable, "-c", code], check=True)
