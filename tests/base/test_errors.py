"""Error texts with long and many names from a file."""

from itertools import chain, count

import pytest

from caffejax.base.errors import CaffejaxError, Problem, did_you_mean


def test_long_messages_are_shortened_but_name_the_location() -> None:
    message = str(Problem("is wrong: " + "m" * 99_999, "f" * 99_999, 3, layer="l" * 99_999, layer_type="t" * 99_999))
    assert len(message) < 20_000
    parts = ["f ... f", "f:3: layer 'l", "l ... l", "l' (t", "t ... t", "t): is wrong: m", "m ... m"]
    positions = [message.index(part) for part in parts]
    assert positions == sorted(positions)


def test_only_the_first_of_many_problems_are_listed() -> None:
    error = CaffejaxError(f"problem {n}" for n in range(5000))
    assert str(error).splitlines()[-2:] == ["problem 999", "and 4000 more problems"]
    assert len(error.problems) == 5000


@pytest.mark.parametrize(
    ("name", "known", "suggested"),
    [
        ("kernel", ["kernel_size", "pad"], "kernel_size"),
        ("pool_param", ["nms_param", "pooling_param"], "pooling_param"),
        ("convolution_parm", ["convolution_param"], "convolution_param"),
        ("InnerProdct", ["InnerProduct"], "InnerProduct"),
        ("my_param", ["nms_param", "mvn_param"], None),
        ("SwiGLU", ["SeLu", "Scale"], None),
    ],
)
def test_suggestions_are_names_that_somebody_may_have_meant(name: str, known: list[str], suggested: str | None) -> None:
    assert did_you_mean(name, known) == (f"; did you mean '{suggested}'?" if suggested else "")


def test_only_some_of_many_names_are_compared() -> None:
    assert did_you_mean("kernl", chain(["kernel"], map(str, count()))) == "; did you mean 'kernel'?"
