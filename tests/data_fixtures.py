"""Helpers of the tests of data layers."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import caffejax.core.data  # registers the layers
from caffejax.base.config import NetConfig
from caffejax.core.layers import LayerDefinition, Source, SourceInput, SourceSpec, type_of
from caffejax.core.schema import caffe_pb2, read_net

GOLDEN = Path(__file__).parents[0] / "golden" / "data"


@pytest.fixture
def golden(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of recorded cases, as the working directory."""
    monkeypatch.chdir(GOLDEN)
    return GOLDEN


class TransformedSource:
    """A source with the batches that the net sees: after the computation on the device."""

    def __init__(self, source: Source, spec: SourceSpec) -> None:
        self.source = source
        self._device_transform = (
            jax.jit(spec.device_transform) if spec.device_transform else lambda *arrays: jax.device_put(arrays)
        )

    def __next__(self) -> tuple[np.ndarray, ...]:
        return tuple(map(np.asarray, self._device_transform(*next(self.source))))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)


@pytest.fixture(scope="module")
def open_source() -> Iterator[Callable[..., TransformedSource]]:
    """Opens the first layer of a net (a path or a text) as a source, in a folder, by options of reading; closes it."""
    sources = []

    def open_source(
        net: str | Path, phase: Any = "TEST", folder: Path | None = None, **data_options: Any
    ) -> TransformedSource:
        layer = read_net(net).layer[0]
        implementation = type_of(layer).implementation
        assert isinstance(implementation, SourceInput)
        file = None if folder is None else str(folder / "net.prototxt")
        definition = LayerDefinition(layer, phase, file, NetConfig(**data_options))
        spec = implementation.probe(definition)
        source = TransformedSource(implementation.open(definition, spec.tops), spec)
        sources.append(source)
        return source

    yield open_source
    for source in sources:
        source.close()


@pytest.fixture(scope="module")
def make_raw_datum() -> Callable[..., bytes]:
    """A Datum with an image that its label decides."""

    def make(label: int, shape: tuple[int, int, int] = (2, 6, 7)) -> bytes:
        image = np.random.default_rng(label).integers(0, 256, shape, np.uint8)
        channels, height, width = shape
        datum = caffe_pb2.Datum(channels=channels, height=height, width=width, data=image.tobytes(), label=label)
        return datum.SerializeToString()

    return make


@pytest.fixture(scope="module")
def raw_db(tmp_path_factory: pytest.TempPathFactory, make_raw_datum: Callable[..., bytes]) -> Path:
    """13 different random images 2x6x7 with labels 0 ... 12, as an LMDB."""
    path = tmp_path_factory.mktemp("db") / "raw"
    caffejax.write_lmdb(path, ((b"%03d" % i, make_raw_datum(i)) for i in range(13)))
    return path


@pytest.fixture(scope="module")
def data_layer_text() -> Callable[..., str]:
    """The text of a net with one Data layer."""

    def make_text(source: Path | str, batch_size: int = 4, transform: str = "", data: str = "backend: LMDB") -> str:
        return f"""layer {{ name: "d" type: "Data" top: "data" top: "label"
            transform_param {{ {transform} }}
            data_param {{ source: "{source}" batch_size: {batch_size} {data} }} }}"""

    return make_text


@pytest.fixture(scope="module")
def hdf5_layer_text() -> Callable[..., str]:
    """The text of a net with one HDF5Data layer, its tops named in one string."""

    def make_text(source: Path | str, tops: str, batch_size: int = 4, settings: str = "") -> str:
        top_fields = " ".join(f'top: "{top}"' for top in tops.split())
        return f"""layer {{ name: "d" type: "HDF5Data" {top_fields}
            hdf5_data_param {{ source: "{source}" batch_size: {batch_size} {settings} }} }}"""

    return make_text
