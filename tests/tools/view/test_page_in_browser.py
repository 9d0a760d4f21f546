"""The page in a real browser: the drawing, and the effects of keys and clicks."""

from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from view_nets import CONFIGS, INVALID_NET, PROBLEMS, find_config

from caffejax.core.graph import build_graph, make_net_state
from caffejax.core.graph.resolve import is_included
from caffejax.core.schema import read_net
from caffejax.tools.summary import summarize

OpenPage = Callable[[Path | str], Any]
TIMES = "\u00d7"
Rect = dict[str, float]

FIND_RECTS = """selector => [...document.querySelectorAll(selector)].map(element => {
  const {x, y, width, height} = element.querySelector(':scope > .card, :scope > rect').getBoundingClientRect();
  return {x, y, width, height, id: element.dataset.item};
})"""


def find_rects(page: Any, selector: str) -> list[Rect]:
    result: list[Rect] = page.evaluate(FIND_RECTS, selector)
    return result


def is_disjoint(a: Rect, b: Rect, slack: float = 0.01) -> bool:
    return (
        a["x"] + a["width"] <= b["x"] + slack
        or b["x"] + b["width"] <= a["x"] + slack
        or a["y"] + a["height"] <= b["y"] + slack
        or b["y"] + b["height"] <= a["y"] + slack
    )


def is_inside(a: Rect, b: Rect) -> bool:
    return (
        b["x"] <= a["x"]
        and a["x"] + a["width"] <= b["x"] + b["width"]
        and b["y"] <= a["y"]
        and a["y"] + a["height"] <= b["y"] + b["height"]
    )


def find_edges(net: Path, phase: Any) -> set[tuple[str, str]]:
    """Return (producer, consumer) for the blobs between layers; in-place layers are left out."""
    message = read_net(net)
    state = make_net_state(message, phase)
    producers: dict[str, str] = {}
    result = set()
    for layer in (x for x in message.layer if is_included(x, state)):
        if list(layer.bottom) == list(layer.top):
            continue
        result |= {(producers[b], layer.name) for b in layer.bottom}
        producers.update(dict.fromkeys(layer.top, layer.name))
    return result


def scroll_into_view(page: Any, item: str) -> Any:
    """Center a box or block in the window, and return its element."""
    page.evaluate("id => caffejaxView.camera.reveal(caffejaxView.places.get(id), true)", item)
    return page.locator(f'[data-item="{item}"]')


FIND_DRAWN_EDGES = """() => {
  const {placed, phase} = caffejaxView;
  const name = (box) => phase.layers[phase.boxes[box].layers[0]].name;
  return placed.edges.filter(({ends}) => ends).map(({source, target}) => [name(source), name(target.start)]);
}"""


@pytest.mark.parametrize("net", ["googlenet", "resnet50", "ssd300", "openpose"])
def test_boxes_and_frames_do_not_overlap(open_net_page: OpenPage, net: str) -> None:
    page = open_net_page(find_config(net))
    for key in ("c", "e"):  # blocks closed, blocks open
        page.keyboard.press(key)
        nodes, frames = find_rects(page, ".box, .block"), find_rects(page, ".frame")
        assert len(nodes) > 9
        assert bool(frames) == (key == "e")
        assert all(is_disjoint(a, b) for a, b in combinations(nodes, 2))
        assert all(
            is_disjoint(a, b) or is_inside(a, b) or is_inside(b, a) for a, b in combinations([*frames, *nodes], 2)
        )
        ends = page.evaluate("caffejaxView.placed.edges.map(({points}) => [points[0].y, points.at(-1).y])")
        assert all(bottom > top for top, bottom in ends)
    assert {tuple(ends) for ends in page.evaluate(FIND_DRAWN_EDGES)} == find_edges(find_config(net), "TRAIN")


def test_blocks_open_and_close(open_net_page: OpenPage) -> None:
    page = open_net_page(find_config("resnet50"))
    num_closed = page.locator(".block").count()
    assert num_closed == 8
    assert page.locator("[data-layer]").count() < 12
    repetition = "res4b \u2026 res4f#0"
    block = scroll_into_view(page, repetition)
    assert f"{TIMES} 5" in block.text_content()
    box_before = block.bounding_box()
    block.locator(".toggle").click()
    frame = page.locator(f'.frame[data-item="{repetition}"]')
    assert abs(frame.bounding_box()["y"] - box_before["y"]) < 2  # it stays where it was clicked
    assert page.locator(".block").count() == num_closed - 1 + 5
    scroll_into_view(page, "res4c#0").dblclick(position={"x": 150, "y": 20})
    titles = page.locator(".layer > title").all_text_contents()
    names = [title.partition(" (")[0] for title in titles if title.startswith("res4c")]
    parts = [f"res4c_branch2{part}" for part in ("a", "a_relu", "b", "b_relu", "c")]
    assert names == [*parts, "res4c", "res4c_relu"]
    scroll_into_view(page, "res4c#0").locator(".toggle").click()
    assert page.locator(".block").count() == num_closed + 4
    page.keyboard.press("Enter")  # it is chosen
    assert page.locator(".block").count() == num_closed + 3
    page.locator("#open-all").click()
    assert page.locator("[data-layer]").count() == page.evaluate("caffejaxView.phase.layers.length")
    assert page.locator(".block").count() == 0
    page.keyboard.press("c")
    assert page.locator(".block").count() == num_closed


@pytest.mark.parametrize(
    ("query", "is_match"),
    [
        ("3a_", lambda layer: "3a_" in " ".join([layer.name, *layer.bottom, *layer.top])),
        ("loss3", lambda layer: "loss3" in " ".join([layer.name, *layer.bottom, *layer.top])),
        ("lrn", lambda layer: layer.type == "LRN"),
        ("conv RELU", lambda layer: layer.type == "ReLU" and "conv" in layer.name + "".join(layer.top)),
        ("nowhere to be found", lambda layer: False),
    ],
)
def test_search_matches_layers_by_name_blob_and_type(
    open_net_page: OpenPage, query: str, is_match: Callable[[Any], bool]
) -> None:
    page = open_net_page(find_config("googlenet"))
    message = read_net(find_config("googlenet"))
    state = make_net_state(message, "TRAIN")
    expected = [layer.name for layer in message.layer if is_included(layer, state) and is_match(layer)]
    page.keyboard.press("/")
    page.keyboard.type(query)
    names = page.locator("#matches [data-match] .name").all_text_contents()
    assert sorted(names) == sorted(expected)[:50]
    assert (page.locator("#matches .count").text_content() or "").startswith(str(len(expected) or "no"))
    if expected:
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowUp")
        page.keyboard.press("Enter")
        assert page.locator("#about h2").text_content() == names[0]
        chosen_layer = page.locator(".layer.chosen.match")  # not pale, as what does not match
        assert chosen_layer.count() == 1  # the blocks around it have been opened, and it is in sight
        match_box = chosen_layer.bounding_box()
        assert 0 < match_box["x"] < 900
        assert 40 < match_box["y"] < 780
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    assert page.locator("#search").input_value() == ""
    assert page.locator(".chosen").count() == 0


def test_the_panel_has_the_numbers_of_each_layer(open_net_page: OpenPage) -> None:
    page = open_net_page(find_config("googlenet"))
    page.keyboard.press("e")
    message = read_net(find_config("googlenet"))
    summary = summarize(build_graph(message, make_net_state(message, "TRAIN")))
    assert f"{summary.parameters:,}" in page.locator("#about .numbers").text_content()
    assert f"{summary.multiply_adds:,}" in page.locator("#about .numbers").text_content()
    definitions = {layer.name: layer for layer in message.layer}
    families = set()
    for index, layer in enumerate(summary.layers):
        if layer.family in families and index % 29:
            continue
        families.add(layer.family)
        page.evaluate("number => caffejaxView.choose({layer: number}, true)", index)
        assert page.locator("#about h2").text_content() == layer.name
        assert (page.locator("#about .chip").text_content() or "").strip() == layer.type
        output = page.locator("#about .numbers").text_content()
        assert f"Parameters{layer.parameters:,}" in output
        assert f"Multiply-adds{layer.multiply_adds:,}" in output
        if layer.receptive_field:
            assert f" {TIMES} ".join(map(str, layer.receptive_field)) in output
        shapes = [f" {TIMES} ".join(map(str, shape)) for shape in layer.top_shapes if shape]
        assert all(shape in page.locator("#about section").all_text_contents()[-1] for shape in shapes)
        assert read_net(page.locator("#about pre").text_content()).layer[0] == definitions[layer.name]
    assert len(families) > 6
    page.locator("#about .link").first.click()
    assert page.locator("#about h2").text_content() != summary.layers[index].name


def test_each_phase_has_its_layers(open_net_page: OpenPage) -> None:
    net = CONFIGS / "ssd_shapes" / "train_test.prototxt"
    page = open_net_page(net)
    message = read_net(net)
    for phase in ("TEST", "TRAIN"):
        page.locator(f'[data-phase="{phase}"]').click()
        page.keyboard.press("e")
        state = make_net_state(message, phase)  # type: ignore[arg-type]
        names = [layer.name for layer in message.layer if is_included(layer, state)]
        titles = page.locator(".layer > title").all_text_contents()
        assert sorted(title.partition(" (")[0] for title in titles) == sorted(names)
        assert page.locator('[aria-pressed="true"]').all_text_contents() == [phase]


def test_a_net_without_a_loss_opens_in_test(open_net_page: OpenPage) -> None:
    page = open_net_page(CONFIGS / "ssd_shapes" / "deploy.prototxt")
    assert page.locator('[aria-pressed="true"]').all_text_contents() == ["TEST"]


def test_problems_are_shown_in_place_and_in_a_list(open_net_page: OpenPage) -> None:
    page = open_net_page(INVALID_NET)
    assert page.locator("#count").text_content() == "4 problems"
    problem_lines = page.locator("#about .problems li").all_text_contents()
    assert sorted(line.partition(":")[0] for line in problem_lines) == sorted(PROBLEMS)
    for name, message in PROBLEMS.items():
        layer = page.locator(f'.layer.wrong:has(.name:text-is("{name}"))')
        assert message in layer.locator("title").text_content()
        assert layer.locator(".complaint").is_visible()
        layer.click()
        assert message in page.locator("#about .problems").text_content()
    assert page.locator(".layer.wrong").count() == len(PROBLEMS)
    page.locator("#count").click()
    page.locator("#about .problems .link").first.click()
    assert page.locator("#about h2").text_content() in PROBLEMS


def test_keys_and_mouse_move_through_the_page(open_net_page: OpenPage) -> None:
    page = open_net_page(find_config("lenet"))
    page.keyboard.press("ArrowDown")
    first_title = page.locator("#about h2").text_content()
    page.keyboard.press("ArrowDown")
    assert page.locator("#about h2").text_content() != first_title
    page.keyboard.press("ArrowUp")
    assert page.locator("#about h2").text_content() == first_title
    page.keyboard.press("+")
    page.keyboard.press("f")
    stage_box = page.locator("#stage").bounding_box()
    assert stage_box["y"] > 40
    assert stage_box["y"] + stage_box["height"] < 800
    page.mouse.move(400, 400)
    page.mouse.wheel(0, 100)
    assert page.locator("#stage").bounding_box()["y"] < stage_box["y"]
    page.mouse.down()
    page.mouse.move(500, 460, steps=4)
    page.mouse.up()
    assert page.locator("#stage").bounding_box()["x"] > stage_box["x"] + 50
