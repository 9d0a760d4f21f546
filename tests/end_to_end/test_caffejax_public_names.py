"""The names that `caffejax` offers, which its stub lists."""

import subprocess
import sys

import pytest

import caffejax


@pytest.mark.parametrize("name", caffejax.__all__)
def test_all_public_names_exist(name: str) -> None:
    assert getattr(caffejax, name) is not None
    assert name in dir(caffejax)


def test_unknown_names_raise() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        caffejax.nonsense  # noqa: B018


def test_import_does_not_import_jax() -> None:
    code = "import sys, caffejax; sys.exit(bool({'jax', 'numpy', 'google.protobuf'} & sys.modules.keys()))"
    subprocess.run([sys.executable, "-c", code], check=True)
