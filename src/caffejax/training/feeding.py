"""What feeds a solver's nets: their data layers, and for Input layers the user's own data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from ..data.loader import Loader
from ..data.user_data import OwnData, shapes_of
from ..errors import Problem, SolverError
from ..graph import Graph
from ..net import Net


class _Place(NamedTuple):
    """A net's data among a solver's arguments: what it is, for messages how to write of it, and of what kind it is."""

    data: Any
    name: str
    net: str


def loader_opener(
    train: Net, tests: Sequence[Net], data: Any, test_data: Any, parts: int = 1
) -> Callable[[Net], Loader]:
    """Return what opens the loader of each of a solver's nets.

    Args:
        train: the net that is trained.
        tests: the test nets.
        data: what feeds the Input layers of the train net; see `OwnData`.
        test_data: likewise of the test net; of several a list with one for each, None for those without Input layers.
        parts: how many of the train net's batches each of the user's is cut into.

    Raises:
        SolverError: naming every net whose Input layers nothing feeds, or that has none to be fed.
    """
    places = {train: _Place(data, "data", "the train net")}
    several = len(tests) > 1
    if several and test_data is not None and not (isinstance(test_data, list | tuple) and len(test_data) == len(tests)):
        raise SolverError(
            f"test_data must be a list with the data of each of the {len(tests)} test nets, None for those without "
            "Input layers"
        )
    if test_data is not None and not tests:
        raise SolverError("test_data is given, but the solver has no test nets: give it test_iter and test_interval")
    for i, net in enumerate(tests):
        own = test_data[i] if several and test_data is not None else test_data
        places[net] = _Place(own, f"test_data[{i}]" if several else "test_data", f"test net #{i}")
    problems = [problem for net, place in places.items() for problem in _problems(net.graph, place)]
    if problems:
        raise SolverError(problems)

    def open_loader(net: Net) -> Loader:
        place, cut = places[net], parts if net is train else 1
        own = None if place.data is None else OwnData(place.name, place.data, net.graph, cut)
        return Loader(net.graph, own_data=own)

    return open_loader


def _problems(graph: Graph, place: _Place) -> Iterator[Problem]:
    if graph.fed_by_hand and place.data is None:
        argument = place.name.partition("[")[0]
        yield Problem(
            f"nothing feeds the inputs of {place.net}: {', '.join(shapes_of(graph))}. In Python give "
            f"caffejax.Solver(..., {argument}={{{', '.join(f'{blob!r}: array' for blob in graph.fed_by_hand)}}}) or "
            "other data of your own (the documentation's page 'Training on your own arrays'). To train from the "
            "command line, put data layers, such as Data, ImageData or HDF5Data, in the place of the Input layers",
            graph.file,
        )
    elif place.data is not None and not graph.fed_by_hand:
        yield Problem(
            f"{place.name} is given, but {place.net} has no Input layers for it to feed; put an Input layer in the "
            "place of its data layers",
            graph.file,
        )
