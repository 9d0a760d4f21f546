"""Flags of `train` and `plan` that arrange devices in a mesh."""

import argparse
from collections.abc import Callable

import pytest

from caffejax.base.config import Parallel
from caffejax.cli import device_flags, plan, train

COMMANDS = {"train": (train.add_flags, "x"), "plan": (plan.add_flags, "x --target=cuda:h100:8")}


@pytest.fixture(params=COMMANDS)
def parse_flags(request: pytest.FixtureRequest) -> Callable[[str], argparse.Namespace]:
    add_flags, required_flags = COMMANDS[request.param]
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return lambda text: parser.parse_args([*required_flags.split(), *text.split()])


@pytest.mark.parametrize(
    ("text", "parallel"),
    [
        ("", Parallel()),
        ("--mesh data=4,model=2", Parallel(model=2, shard="optimizer")),
        ("-mesh=model=2", Parallel(model=2, shard="optimizer")),
        ("--mesh data=8", Parallel(shard="optimizer")),
        ("--mesh data=4,model=2 --shard none", Parallel(model=2)),
        ("--shard params", Parallel(shard="params")),
        ("--reduce_dtype=float32", Parallel(reduce_dtype="float32")),
    ],
)
def test_mesh_flags_give_the_settings(
    parse_flags: Callable[[str], argparse.Namespace], text: str, parallel: Parallel
) -> None:
    assert device_flags.make_parallel_config(parse_flags(text), "device") == parallel


@pytest.mark.parametrize("mesh", ["", "8", "data", "data=0", "data=-1", "data=2,data=2", "rows=2"])
def test_invalid_meshes_are_refused(
    parse_flags: Callable[[str], argparse.Namespace], mesh: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse_flags(f"--mesh={mesh}")
    assert "data=4,model=2" in capsys.readouterr().err


def test_the_batch_flag_sets_the_parallel_batch() -> None:
    parser = argparse.ArgumentParser()
    train.add_flags(parser)
    assert device_flags.make_parallel_config(parser.parse_args(["x", "--batch=global"])) == Parallel(batch="global")


@pytest.mark.parametrize("scaling", ["", "8,", "0", "8,x"])
def test_invalid_numbers_of_devices_are_refused(scaling: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    plan.add_flags(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["x", "--target=cuda:h100:8", f"--scaling={scaling}"])
    assert "is not a positive integer" in capsys.readouterr().err
