"""Pictures of the server's page, for README and documents.

    python -m benchmarks.screenshots docs/pictures

Needs Chromium of the system and Playwright (`pip install 'albertine[dev]'`).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from albertine.core.released import DEFAULT_MODELS, released_folder
from tests.serving.browser import browser, served, tab

if TYPE_CHECKING:
    from playwright.sync_api import Page

PICTURES = (
    ("page-masks-en-light", "en", "light", "fill", "#result .bars"),
    ("page-depth-en-dark", "en", "dark", "lens", "#result .scroll"),
    ("page-attention-zh-dark", "zh", "dark", "attention", "#result canvas"),
    ("page-layers-zh-light", "zh", "light", "states", "#result .charts"),
)
"""Name of the file, language, colour scheme, view, and the element with which the picture ends."""
WIDTH, MARGIN = 960, 4
LOCALES = {"en": "en-US", "zh": "zh-CN"}


def photograph(page: Page, address: str, view: str, last: str, file: Path) -> None:
    """Save what a view shows of its first example."""
    page.goto(f"{address}#{view}")
    page.wait_for_selector("#result > details")
    box = page.locator(last).last.bounding_box()
    assert box is not None
    height = round(box["y"] + box["height"] + MARGIN)
    page.set_viewport_size({"width": WIDTH, "height": height})
    page.wait_for_timeout(300)  # the last frame
    page.screenshot(path=file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    with browser() as chromium:
        for name, language, scheme, view, last in PICTURES:
            model = released_folder(DEFAULT_MODELS[language])
            size = {"width": WIDTH, "height": 900}
            options = {"locale": LOCALES[language], "color_scheme": scheme, "viewport": size}
            with served(model) as address, tab(chromium, **options) as page:
                photograph(page, address, view, last, folder / f"{name}.png")
            print(folder / f"{name}.png")


if __name__ == "__main__":
    main()
