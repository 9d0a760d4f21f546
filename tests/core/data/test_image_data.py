"""ImageData beyond the recorded cases: order, paths, and invalid lists and images."""

import cv2
import numpy as np
import pytest
from labelled_images import read_labels

from caffejax.base.errors import DataError
from caffejax.core.data.image_decoding import read_image
from caffejax.core.data.image_list import read_list


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Seven grey images whose pixels are 10 times their label, and a list of them."""
    path = tmp_path_factory.mktemp("images")
    (path / "in").mkdir()
    for i in range(7):
        cv2.imwrite(str(path / "in" / f"a {i}.png"), np.full((4, 5), 10 * i, np.uint8))
    (path / "list.txt").write_text("".join(f"in/a {i}.png {i}\n" for i in range(7)))
    return path


def layer_text(source, settings="", batch_size=3, transform=""):
    return f"""layer {{ name: "d" type: "ImageData" top: "data" top: "label" transform_param {{ {transform} }}
        image_data_param {{ source: "{source}" batch_size: {batch_size} {settings} }} }}"""


def test_first_image_follows_the_last(folder, open_source):
    source = open_source(layer_text(folder / "list.txt"))
    assert read_labels(source, 5) == [0, 1, 2, 3, 4, 5, 6] * 2 + [0]
    assert [top.shape for top in source.tops] == [(3, 3, 4, 5), (3,)]


@pytest.mark.parametrize("workers", [0, 1])
def test_seed_determines_the_shuffled_order_of_each_epoch(folder, open_source, workers):
    net = layer_text(folder / "list.txt", "shuffle: true")
    order = read_labels(open_source(net, seed=1, workers=workers), 14)
    epochs = [tuple(order[i : i + 7]) for i in range(0, 42, 7)]
    assert all(sorted(r) == list(range(7)) for r in epochs)
    assert len(set(epochs)) > 3
    assert read_labels(open_source(net, seed=1), 14) == order
    assert read_labels(open_source(net, seed=2), 14) != order
    resumed_source = open_source(net, seed=1)
    resumed_source.set_state({"examples": 6})
    assert read_labels(resumed_source, 12) == order[6:]


def test_rand_skip_skips_up_to_that_many_images(folder, open_source):
    starts = {
        read_labels(open_source(layer_text(folder / "list.txt", "rand_skip: 4"), seed=seed), 1)[0] for seed in range(30)
    }
    assert starts == {0, 1, 2, 3}
    net = layer_text(folder / "list.txt", "rand_skip: 1000000")
    with pytest.raises(DataError, match=r"rand_skip skips \d+ of 7 images"):
        open_source(net)


def test_root_folder_is_a_prefix_of_the_names(folder, open_source, tmp_path):
    (tmp_path / "list.txt").write_text("0.png 0\n3.png 3\n")
    source = open_source(layer_text(tmp_path / "list.txt", f'root_folder: "{folder}/in/a "', 2))
    assert read_labels(source, 1) == [0, 3]


def test_images_can_be_gray_and_resized(folder, open_source):
    source = open_source(layer_text(folder / "list.txt", "is_color: false new_height: 8 new_width: 6", 7))
    data, label = next(source)
    assert data.shape == (7, 1, 8, 6)
    assert (data == 10 * label[:, None, None, None]).all()


def test_the_pixel_limit_applies_after_resizing(folder):
    file = folder / "in" / "a 1.png"
    assert read_image(file, True, 8, 5, max_pixels=40).shape == (3, 8, 5)
    with pytest.raises(DataError, match=r"height 8 and width 6: .* max_image_pixels, 40 \(--max_image_pixels\)"):
        read_image(file, True, 8, 6, max_pixels=40)


@pytest.mark.parametrize("is_color", [True, False])
@pytest.mark.parametrize("size", [(0, 0), (9, 7), (30, 41)])
def test_images_are_read_as_opencv_reads_files(tmp_path, is_color, size):
    pixels = np.random.default_rng(0).integers(0, 256, (20, 13, 3), np.uint8)
    cv2.imwrite(str(tmp_path / "x.jpg"), pixels)
    expected = cv2.imread(str(tmp_path / "x.jpg"), cv2.IMREAD_COLOR if is_color else cv2.IMREAD_GRAYSCALE)
    if any(size):
        expected = cv2.resize(expected, size[::-1])
    expected = expected.transpose(2, 0, 1) if is_color else expected[None]
    np.testing.assert_array_equal(read_image(tmp_path / "x.jpg", is_color, *size), expected)


def test_lines_are_split_at_the_last_space(tmp_path):
    (tmp_path / "list").write_bytes(b"a b.jpg 3\r\nc.jpg -1\nd\xff.jpg +7\n\n\n")
    names, labels = read_list(tmp_path / "list")
    assert names == ["a b.jpg", "c.jpg", b"d\xff.jpg".decode("utf-8", "surrogateescape")]
    assert labels == [3, -1, 7]


def test_all_bad_lines_are_named_at_once(tmp_path):
    (tmp_path / "list").write_text(
        "a.jpg 1\nb.jpg\n\nc.jpg one\nd.jpg 2\n 3\ne.jpg 99999999999\n" + f"f.jpg {'7' * 6000}\n"
    )
    with pytest.raises(DataError) as exc_info:
        read_list(tmp_path / "list")
    lines = str(exc_info.value).splitlines()
    assert [line.split(":")[1] for line in lines] == ["2", "3", "4", "6", "7", "8"]
    assert lines[0].endswith("list:2: 'b.jpg' is not a path, a space and an integer")
    assert lines[1].endswith("list:3: is blank")


def test_lines_longer_than_any_path_are_refused(tmp_path):
    (tmp_path / "list").write_bytes(b"a\x0cb.jpg 1\n" + b"c" * 70_000 + b".jpg 2\n")
    with pytest.raises(DataError, match=r"list:2: is 68\.37 KiB long; a line has at most 64 KiB"):
        read_list(tmp_path / "list")


def test_all_missing_images_are_named_at_once(folder, open_source):
    names = ["in/a 1.png", "in/b.png", "nowhere/c.png"]
    (folder / "missing.txt").write_text("".join(f"{name} 0\n" for name in names))
    with pytest.raises(DataError) as exc_info:
        open_source(layer_text(folder / "missing.txt"))
    lines = str(exc_info.value).splitlines()
    assert [line.split("missing.txt:")[1] for line in lines] == [
        "2: layer 'd' (ImageData): there is no image 'in/b.png'",
        "3: layer 'd' (ImageData): there is no image 'nowhere/c.png'",
    ]
    (folder / "missing.txt").write_text("".join(f"{i}.png 0\n" for i in range(50)))
    with pytest.raises(DataError, match="and 30 more"):
        open_source(layer_text(folder / "missing.txt"))


def test_an_undecodable_image_is_named_when_its_batch_is_read(folder, open_source):
    (folder / "bad.png").write_bytes(b"no image")
    (folder / "bad.txt").write_text("in/a 0.png 0\nin/a 1.png 1\nin/a 2.png 2\nbad.png 3\n")
    source = open_source(layer_text(folder / "bad.txt"))
    assert read_labels(source, 1) == [0, 1, 2]
    with pytest.raises(DataError, match=r"bad.png: layer 'd' \(ImageData\): its image of 8 bytes cannot be decoded"):
        next(source)


def test_images_of_different_sizes_are_named(folder, open_source):
    cv2.imwrite(str(folder / "large.png"), np.zeros((6, 6), np.uint8))
    (folder / "sizes.txt").write_text("in/a 0.png 0\nlarge.png 1\n")
    with pytest.raises(
        DataError, match=r"image '.*large.png' becomes 3x6x6 \(CxHxW\), but the batch's first image becomes 3x4x5"
    ):
        next(open_source(layer_text(folder / "sizes.txt", batch_size=2)))


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (layer_text(""), "image_data_param has no source"),
        (layer_text("nowhere"), "nowhere: .*the list of images cannot be read: No such file"),
        (layer_text("x", batch_size=0), "batch_size must be 1 or more"),
        (layer_text("x", "new_height: 3"), "only one of new_height and new_width"),
        (layer_text("x", "balance_by: 3"), "image_data_param.balance_by is not supported yet"),
    ],
)
def test_invalid_settings_are_refused(open_source, net, message):
    with pytest.raises(DataError, match=message):
        open_source(net)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"\n", "the list names no images"), (b"\0\1\n" * 99, "list: .*: is not a text file; each line")],
)
def test_files_that_are_not_lists_are_refused(open_source, tmp_path, content, message):
    (tmp_path / "list").write_bytes(content)
    with pytest.raises(DataError, match=message) as exc_info:
        open_source(layer_text(tmp_path / "list"))
    assert len(exc_info.value.problems) == 1
