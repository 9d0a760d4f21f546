"""The length of a `Loader`, and its epochs."""

from itertools import islice
from pathlib import Path

import cv2
import numpy as np
import pytest

from caffejax import Loader, Net, write_lmdb
from caffejax.base.config import DataShard, NetConfig
from caffejax.core.schema.caffe_pb2 import Datum

NUM_EXAMPLES = 7


@pytest.fixture
def text(tmp_path: Path) -> str:
    datums = [Datum(channels=1, height=1, width=1, data=bytes([i]), label=i) for i in range(NUM_EXAMPLES)]
    write_lmdb(tmp_path / "db", [(b"%d" % i, datum.SerializeToString()) for i, datum in enumerate(datums)])
    return f"""
    layer {{ name: "d" type: "Data" top: "data" top: "label"
      data_param {{ source: "{tmp_path / "db"}" batch_size: BATCH backend: LMDB }} }}
    """


@pytest.mark.parametrize(("batch_size", "length"), [(1, 7), (2, 4), (7, 1), (10, 1)])
def test_an_epoch_of_a_loader_has_its_length_and_every_example(text: str, batch_size: int, length: int) -> None:
    loader = Loader(Net(text.replace("BATCH", str(batch_size))).graph)
    assert len(loader) == length
    labels = [[batch["label"] for batch in loader.epoch()] for _ in range(2)]
    loader.close()
    assert [len(batches) for batches in labels] == [length, length]
    np.testing.assert_array_equal(np.ravel(labels), np.arange(2 * length * batch_size) % NUM_EXAMPLES)
    assert set(np.ravel(labels[0])) == set(range(NUM_EXAMPLES))


def test_an_epoch_of_shards_has_every_example_once(text: str) -> None:
    """Each process iterates over its batches; together they are those of one process."""
    labels = []
    for index in range(2):
        shard = DataShard(index, 1, 2)
        loader = Loader(Net(text.replace("BATCH", "1"), config=NetConfig(shard=shard)).graph)
        assert len(loader) == NUM_EXAMPLES
        labels += [int(batch["label"][0]) for batch in loader.epoch()]
        loader.close()
    assert sorted(labels) == list(range(NUM_EXAMPLES))


def test_a_loader_of_data_without_end_has_no_length(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "image.png"), np.zeros((9, 9, 3), np.uint8))
    (tmp_path / "windows.txt").write_text(f"# 0\n{tmp_path}/image.png\n3\n9\n9\n2\n1 0.9 0 0 4 4\n0 0.1 0 0 4 4\n")
    net = Net(
        f"""
        layer {{ name: "d" type: "WindowData" top: "data" top: "label" transform_param {{ crop_size: 4 }}
          window_data_param {{ source: "{tmp_path}/windows.txt" batch_size: 2 }} }}
        """
    )
    loader = Loader(net.graph)
    for ask in (len, lambda loader: list(islice(loader.epoch(), 1))):
        with pytest.raises(TypeError, match=r"no length.*itertools.islice\(loader, 100\)"):
            ask(loader)
    loader.close()
