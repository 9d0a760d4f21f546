"""Make the documentation's pictures of `caffejax view`, with the system's Chromium driven by playwright."""

import os
import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from caffejax.view import write_page

REPOSITORY = Path(__file__).parents[1]
PICTURE = REPOSITORY / "docs" / "pictures" / "view_googlenet.png"
SHOWN = """([name, block]) => {
  const view = caffejaxView;
  view.choose({layer: view.phase.layers.findIndex((layer) => layer.name === name)});
  view.camera.scale = 0.95;
  view.camera.reveal(view.places.get(block), true);
}"""


def main() -> None:
    program = shutil.which("chromium")
    if program is None:
        raise SystemExit("needs Chromium: apt-get install chromium")
    os.chdir(REPOSITORY)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        file = Path(folder) / "googlenet.html"
        write_page(Path("configs") / "googlenet" / "train_val.prototxt", file)  # as the page says it
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 800})
        page.goto(file.as_uri())
        page.evaluate(SHOWN, ["inception_4a/3x3", "inception_4a#0"])
        PICTURE.parent.mkdir(exist_ok=True)
        page.screenshot(path=PICTURE)
        browser.close()
    print(f"Wrote {PICTURE.relative_to(REPOSITORY)}, {PICTURE.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
