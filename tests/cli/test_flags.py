"""Flags that stand for the fields of `Run` and `Reading`."""

import argparse
from dataclasses import fields

import pytest

from caffejax.cli import flags
from caffejax.options import LIMITS, Reading, Run


@pytest.fixture
def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser()
    flags.add_options(made)
    flags.add_options(made, *LIMITS)
    return made


def test_every_option_is_a_flag_but_those_that_solvers_set(parser: argparse.ArgumentParser) -> None:
    names = {field.name for kind in (Run, Reading) for field in fields(kind)}
    assert vars(parser.parse_args([])).keys() == names - {"seed", "share", "axis_name"}


def test_flags_have_the_options_own_defaults(parser: argparse.ArgumentParser) -> None:
    options = parser.parse_args([])
    assert flags.run_of(options) == Run()
    assert flags.reading_of(options) == Reading()


def test_flags_set_the_options(parser: argparse.ArgumentParser) -> None:
    options = parser.parse_args(
        "--kernels=reference -precision bfloat16 --backward=rules --remat=auto --memory-limit=2KiB --workers=3 "
        "-skip_bad_images=true --max_image_pixels=9 --max_hdf5_bytes=1KiB --no_python_layers".split()
    )
    assert flags.run_of(options) == Run("reference", "bfloat16", "rules", "auto", 2048)
    assert flags.reading_of(options) == Reading(
        workers=3, skip_bad=True, max_image_pixels=9, max_hdf5_bytes=1024, no_python_layers=True
    )


def test_a_value_that_an_option_cannot_have_is_refused(
    parser: argparse.ArgumentParser, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parser.parse_args(["--precision=float16"])
    assert "choose from" in capsys.readouterr().err
