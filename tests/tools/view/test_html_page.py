"""The file of the page: complete, with the licence, with escaped JSON, and written atomically."""

import json
import re
from importlib.resources import files
from pathlib import Path

import pytest
from view_nets import HOSTILE_NAMES, find_config, make_hostile_net

from caffejax.base.errors import CaffejaxError
from caffejax.tools.summary import FAMILIES
from caffejax.tools.view import write_view
from caffejax.tools.view.html_page import escape_json, read_asset, render_page

LENET = find_config("lenet")


def test_a_page_references_no_other_files(tmp_path: Path) -> None:
    write_view(LENET, tmp_path / "net.html")
    text = (tmp_path / "net.html").read_text()
    licence = (files("caffejax.tools.view") / "assets" / "dagre" / "LICENSE").read_text()
    assert licence in text
    assert "Permission is hereby granted" in licence
    assert not re.search(r"""(src|href)\s*=\s*["']?(?!data:)[a-z/]""", text.partition("<script>")[0])
    assert "sourceMappingURL" not in text
    assert "connect-src 'none'" in text


def test_each_family_has_a_color() -> None:
    style = read_asset("page.css")
    assert [family for family in (*FAMILIES, "unbuilt") if f".family-{family} " not in style] == []


def test_text_of_a_net_cannot_end_the_json(tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text(make_hostile_net())
    write_view(tmp_path / "net.prototxt", tmp_path / "net.html")
    text = (tmp_path / "net.html").read_text()
    assert text.count("</script>") == text.count("<script") == 2
    assert "hacked" in text
    result = re.search('id="net">(.*?)</script>', text)
    assert result is not None
    assert result[1].isascii()
    assert result[1].isprintable()
    assert json.loads(result[1])["net"]["phases"]["TEST"]["layers"][1]["name"] == HOSTILE_NAMES[0]


@pytest.mark.parametrize("text", ["</script>", "<!--", "&lt;", "\u2028", "\ud800", '"\\'])
def test_escaped_json_is_safe_in_html(text: str) -> None:
    escaped_text = escape_json([text])
    assert escaped_text.isascii()
    assert not set(escaped_text) & set("<>&")
    assert json.loads(escaped_text) == [text]


def test_the_policy_allows_only_the_script_of_the_page() -> None:
    first, second = (
        re.search(rb"script-src '(sha256-[^']+)'", render_page({"a": 1}, is_live)) for is_live in (False, True)
    )
    assert first is not None
    assert second is not None
    assert first[1] == second[1]
    assert b"'unsafe" not in render_page({})


def test_a_page_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(CaffejaxError, match="create the folder first"):
        write_view(LENET, tmp_path / "absent" / "net.html")
    assert list(tmp_path.iterdir()) == []
