"""Lists and dicts of a net that scripts read, and that refuse changes, which would have no effect on the net."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, NoReturn

from ..base.errors import ArgumentTypeError, OutOfRangeError, ReadOnlyError, UnknownNameError, did_you_mean

_LIST_CHANGES = "__setitem__ __delitem__ __iadd__ __imul__ append extend insert pop remove clear sort reverse".split()
_DICT_CHANGES = "__setitem__ __delitem__ __ior__ update setdefault pop popitem clear move_to_end".split()


def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise ReadOnlyError(f"{self._name} cannot be changed; {self._remedy}")


def _assign(self: Any, key: Any, value: Any) -> None:
    """Refuse a new item. `net.params["fc"] += [blob]` has changed the item itself, and assigns the item."""
    if isinstance(value, list) and value is self.get(key):
        return
    _refuse(self)


class ReadOnlyList(list[Any]):
    """A list whose items cannot be changed.

    Args:
        items: the items.
        name: what the list is called in messages, such as "net.layers".
        remedy: what to do instead of a change.
    """

    def __init__(self, items: Iterable[Any], name: str, remedy: str) -> None:
        super().__init__(items)
        self._name, self._remedy = name, remedy

    def __getitem__(self, index: Any) -> Any:
        try:
            return super().__getitem__(index)
        except IndexError:
            raise OutOfRangeError(f"{self._name} has {len(self)} items, counted from 0, and no item {index}") from None
        except TypeError:
            raise ArgumentTypeError(f"{self._name} takes an index or a slice, not {index!r}") from None

    def copy(self) -> list[Any]:
        """Return a list that can be changed."""
        return list(self)

    def __reduce__(self) -> Any:
        return list, (list(self),)


class ReadOnlyDict(OrderedDict[str, Any]):
    """A dict whose items cannot be changed.

    Args:
        items: the items.
        name: what the dict is called in messages, such as "net.blobs".
        remedy: what to do instead of a change.
        noun: what a key names, such as "blob".
    """

    def __init__(self, items: Iterable[tuple[str, Any]], name: str, remedy: str, noun: str) -> None:
        super().__init__()
        for key, value in items:
            super().__setitem__(key, value)
        self._name, self._remedy, self._noun = name, remedy, noun

    def __getitem__(self, key: Any) -> Any:
        try:
            return super().__getitem__(key)
        except TypeError:
            raise ArgumentTypeError(f"{self._name} takes the name of a {self._noun}, not {key!r}") from None

    def __missing__(self, key: Any) -> NoReturn:
        similar = did_you_mean(key, self) if isinstance(key, str) else ""
        raise UnknownNameError(f"{self._name} has no {self._noun} {key!r}{similar}")

    def copy(self) -> Any:
        """Return a dict that can be changed."""
        return OrderedDict(self)

    __copy__ = copy

    def __reduce__(self) -> Any:
        return OrderedDict, (list(self.items()),)


for _name in _LIST_CHANGES:
    setattr(ReadOnlyList, _name, _refuse)
for _name in _DICT_CHANGES:
    setattr(ReadOnlyDict, _name, _refuse)
ReadOnlyDict.__setitem__ = _assign  # type: ignore[method-assign]
