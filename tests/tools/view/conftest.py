"""One browser for all tests of a file: the system's Chromium, driven by playwright."""

import functools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from caffejax.tools.view import write_view

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_BROWSER_FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")  # as in containers


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Yield a browser. It is not kept for the session, because its event loop would disturb other tests."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs the package playwright, which is absent")
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"needs a browser, one of {', '.join(BROWSERS)}, which are absent: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=list(_BROWSER_FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def tab(browser: Any) -> Iterator[Any]:
    """Yield a new tab; errors in it fail the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(f"error: {error}"))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("dialog", lambda dialog: errors.append(f"dialog: {dialog.message}"))
    yield page
    context.close()
    assert [error for error in errors if "ERR_CONNECTION_REFUSED" not in error] == []  # of a server that stopped


@pytest.fixture(scope="session")
def write_net_page(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path | str], Path]:
    """Return a function that writes the page of a net, given by file or text, once."""

    @functools.cache
    def write_once(net: Path | str) -> Path:
        folder = tmp_path_factory.mktemp("page")
        if isinstance(net, str):
            (folder / "net.prototxt").write_text(net)
        write_view(folder / "net.prototxt" if isinstance(net, str) else net, folder / "net.html")
        return folder / "net.html"

    return write_once


@pytest.fixture
def open_net_page(tab: Any, write_net_page: Callable[[Path | str], Path]) -> Callable[[Path | str], Any]:
    """Return a function that opens the page of a net in the tab."""

    def open_page(net: Path | str) -> Any:
        tab.goto(write_net_page(net).as_uri())
        return tab

    return open_page
