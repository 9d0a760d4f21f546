"""Requests of several processes, combined over their devices."""

from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest


def decode_requests(model: int, first_requests: list[int], second_requests: list[int]) -> list[int]:
    """Return the requests that four of eight devices decode; another process sends `second_requests`."""
    import jax

    from caffejax.core.parallel.mesh import make_mesh
    from caffejax.core.parallel.multihost import Requests

    requests, result = Requests(make_mesh(jax.devices(), model)), []
    for pair in zip(first_requests, second_requests, strict=True):
        parts = [np.asarray(requests.encode(request)).ravel() for request in pair]
        half = len(parts[0]) // 2
        result.append(requests.decode(np.sum([*parts[0][:half], *parts[1][half:]])))
    return result


@pytest.mark.parametrize("model", [1, 2])
def test_the_largest_request_is_decoded_one_iteration_later(eight_devices: ProcessPoolExecutor, model: int) -> None:
    first_requests, second_requests = [0, 1, 0, 2, 1, 0, 2, 0], [0, 0, 1, 1, 1, 2, 2, 0]
    largest = [max(pair) for pair in zip(first_requests, second_requests, strict=True)]
    assert eight_devices.submit(decode_requests, model, first_requests, second_requests).result() == [0, *largest[:-1]]
