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
    ("page-masks-en-light", "en", "light", "fill"),
    ("page-masks-zh-dark", "zh", "dark", "fill"),
    ("page-attention-en-dark", "en", "dark", "attention"),
    ("page-layers-zh-light", "zh", "light", "states"),
)
"""Name of the file, language, colour scheme and view."""
SIZE = {"width": 900, "height": 640}
LOCALES = {"en": "en-US", "zh": "zh-CN"}


def photograph(page: Page, address: str, view: str, file: Path) -> None:
    """Save what a view shows of its first example."""
    page.goto(f"{address}#{view}")
    page.wait_for_selector("#result > details, main td")
    page.wait_for_timeout(300)  # the last frame
    page.screenshot(path=file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    with browser() as chromium:
        for name, language, scheme, view in PICTURES:
            model = released_folder(DEFAULT_MODELS[language])
            options = {"locale": LOCALES[language], "color_scheme": scheme, "viewport": SIZE}
            with served(model) as address, tab(chromium, **options) as page:
                photograph(page, address, view, folder / f"{name}.png")
            print(folder / f"{name}.png")


if __name__ == "__main__":
    main()
