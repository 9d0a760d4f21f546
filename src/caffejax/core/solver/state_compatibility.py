"""Checks that a stored training state belongs to the solver's update rule.

The arrays of two rules can have the same number and shapes and another meaning: SGD's velocity is no mean of squared
gradients. caffejax stores the rule's name with each state. Caffe does not, so its files are judged by the number of
arrays for each blob and by their signs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...base.errors import CaffejaxError, WeightsError
from ...base.human_readable import format_count
from ..schema import read_solver
from .reporting import log
from .update_rules import RULES


def stored_rule(record: Mapping[str, Any]) -> str | None:
    """Return the name of the rule that wrote a snapshot's record, or None if the record does not say it."""
    if "type" in record:
        return str(record["type"])
    try:  # snapshots of earlier versions have the solver's text only
        return str(read_solver(record["solver"] + "\n").type) if isinstance(record.get("solver"), str) else None
    except CaffejaxError:
        return None


def check_stored_rule(record: Mapping[str, Any], type: str, file: str, weights: str) -> None:
    """Check that a record is of the update rule `type`, or of a rule whose state has the same meaning.

    Args:
        record: the snapshot's record; nothing is checked if it names no rule.
        type: the solver's type.
        file: the snapshot, for the log.
        weights: the file with the snapshot's weights, or "it" if `file` contains them.

    Raises:
        WeightsError: if it is of another rule. The message names both rules.
    """
    stored = stored_rule(record) or type
    if message := find_rule_difference(stored, type):
        raise WeightsError(f"this is {message}; {_remedy(stored, weights)}")
    if stored != type:
        log.info("%s: the state of %s is continued by %s; both store the same", file, stored, type)


def find_rule_difference(stored: str, type: str) -> str | None:
    """Return the end of a message that names both rules if their states differ in meaning, or None.

    Args:
        stored: the name of the rule whose state it is, or "" if it is unknown; `TrainState.rule` is such a name.
        type: the name of the solver's rule.
    """
    names = [RULES[name].state_name if name in RULES else name for name in (stored, type)]
    if not stored or names[0] == names[1]:
        return None
    return f"the state of type {stored}, but the solver's type is {type}, whose state has another meaning"


def check_slot_count(count: int, num_blobs: int, type: str, weights: str) -> None:
    """Check that a state has as many arrays as the rule `type` needs.

    Args:
        count: the number of the state's arrays.
        num_blobs: the number of the net's learnable blobs.
        type, weights: see `check_stored_rule`.

    Raises:
        WeightsError: if it has another number. The message names the rules that write this number.
    """
    num_slots = RULES[type].num_slots
    if count == num_slots * num_blobs:
        return
    writers = [rule.name for rule in RULES.values() if rule.num_slots * num_blobs == count]
    message = (
        f"has {format_count(count, 'history blob')}, but {type} on this net needs {num_slots * num_blobs} "
        f"({num_slots} for each of {format_count(num_blobs, 'learnable blob')})"
    )
    if not writers:
        raise WeightsError(f"{message}; resume with the net and the solver type that wrote the file")
    names = _join(writers)
    raise WeightsError(f"{message}; it is the state of {names}: {_remedy(names, weights)}")


def check_signs(slots: Sequence[Sequence[np.ndarray]], type: str, file: str, weights: str) -> None:
    """Check the history of a file that names no rule: a rule's sums of squares have no negative numbers.

    A history without negative numbers may still be a velocity, so it is only a warning where the rule `type` expects
    numbers of both signs.

    Args:
        slots: for each slot the arrays of all blobs.
        type, file, weights: see `check_stored_rule`.

    Raises:
        WeightsError: if the file cannot be of this rule. The message names the rules that may have written it.
    """
    rule = RULES[type]
    negative = {i for i, arrays in enumerate(slots) if any((np.asarray(a) < 0).any() for a in arrays)}
    others = [r for r in RULES.values() if r.num_slots == rule.num_slots and r.state_name != rule.state_name]
    if wrong_slots := negative & set(rule.nonnegative_slots):
        writers = _join([r.name for r in others if not negative & set(r.nonnegative_slots)]) or "another rule"
        message = f"its history {min(wrong_slots)} has negative numbers, but {type} stores squares there"
        raise WeightsError(f"{message}; it is the state of {writers}: {_remedy(writers, weights)}")
    is_zero = not any(np.any(a) for arrays in slots for a in arrays)
    suspects = [r.name for r in others if len(r.nonnegative_slots) > len(rule.nonnegative_slots)]
    if not negative and not is_zero and suspects:
        log.warning(
            "%s: no number of its history is negative, as in states of %s; the file does not name its rule, so it is "
            "taken as the state of %s. If that is wrong, %s",
            *(file, _join(suspects), type, _remedy(_join(suspects), weights)),
        )
    elif others and not is_zero:
        log.info("%s does not name its update rule; its history is taken as the state of %s", file, type)


def _remedy(writer: str, weights: str) -> str:
    same = "the same optimizer=" if writer == "optax" else f"type {writer}"
    return (
        f"resume with {same}, or start from the weights alone: pass {weights} as --weights instead of "
        "--snapshot (in Python, weights= instead of resume=)"
    )


def _join(names: Sequence[str]) -> str:
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else list(names))
