"""Waits of one process for another, with a store of texts instead of JAX's coordinator."""

import json
import time
from typing import Any

import jax
import pytest

from caffejax import CaffejaxError
from caffejax.core.parallel import coordination
from caffejax.core.parallel.coordination import current_wait, exchange


class Store:
    """The part of the client of JAX's coordination service that waits use."""

    def __init__(self, texts: dict[str, str]) -> None:
        self.texts, self.waits = texts, []

    def key_value_set(self, key: str, text: str, allow_overwrite: bool = False) -> None:
        assert allow_overwrite or key not in self.texts
        self.texts[key] = text

    def key_value_dir_get(self, key: str) -> list[tuple[str, str]]:
        return [item for item in self.texts.items() if item[0].startswith(key)]

    def blocking_key_value_get(self, key: str, milliseconds: int) -> str:
        self.waits.append(current_wait())
        text = next((text for name, text in self.texts.items() if name.endswith(key.rpartition("/")[2])), None)
        if text is None:
            raise jax.errors.JaxRuntimeError("DEADLINE_EXCEEDED: GetKeyValue() timed out")
        return text


@pytest.fixture
def use_store(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that makes this process number 0 of 2, with a store of these texts."""

    def use(**texts: str) -> Store:
        store = Store({f"other/{key[1:]}": text for key, text in texts.items()})
        monkeypatch.setattr(jax, "process_count", lambda: 2)
        monkeypatch.setattr(jax, "process_index", lambda: 0)
        monkeypatch.setattr(coordination, "_get_client", lambda: store)
        monkeypatch.setattr(coordination, "WAIT_LIMIT", 0.05)
        return store

    return use


def test_texts_come_in_the_order_of_processes(use_store: Any) -> None:
    store = use_store(_1='["compare", "b"]')
    assert exchange("compare", "a") == ["a", "b"]
    [(subject, seconds)] = store.waits
    assert subject == "process 1 to compare"
    assert 0 <= seconds < 1
    assert current_wait() is None


def test_a_wait_has_a_limit_and_says_for_whom_and_what(use_store: Any) -> None:
    use_store()
    message = "waited 0.05 s for process 1 to compare the job; it is alive, but does something else: see its log"
    with pytest.raises(CaffejaxError, match=message):
        exchange("compare the job")
    assert current_wait() is None


def test_processes_that_do_different_things_are_refused(use_store: Any) -> None:
    use_store(_1='["end training", ""]')
    message = "the processes do different things: compare in process 0, end training in process 1; run the same program"
    with pytest.raises(CaffejaxError, match=message):
        exchange("compare")


def test_a_process_that_waits_in_compiled_code_says_what_the_other_one_does(use_store: Any) -> None:
    store = use_store()
    coordination.note_progress("reads the data of iteration 4")
    coordination.note_progress("runs iteration 4")
    assert coordination._find_late_process() is None
    number, action = json.loads(store.texts["caffejax/progress/0"])
    assert action == "runs iteration 4"
    time.sleep(0.06)
    message = "waited 0.05 s for process 1, which reads the data of iteration 4; see its log"
    for other, expected in ((number - 1, message), (number, None), (number + 1, None)):
        store.texts["caffejax/progress/1"] = json.dumps([other, "reads the data of iteration 4"])
        assert coordination._find_late_process() == expected
