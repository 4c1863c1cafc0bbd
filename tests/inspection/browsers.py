"""A browser for tests, and a record of what its windows do.

NANOGPT_NEED_BROWSER=1 makes a browser that is missing a failure.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Dialog, Locator, Page, sync_playwright

NEEDED = bool(os.environ.get("NANOGPT_NEED_BROWSER"))
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    *("--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)


@contextmanager
def launch() -> Iterator[Browser]:
    """Yield a headless browser of this machine's, or skip where there is none."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        told = f"no browser: none of {', '.join(BROWSERS)} is on the PATH"
        (pytest.fail if NEEDED else pytest.skip)(told)
    sandbox = () if os.geteuid() else ("--no-sandbox",)  # which root may not have
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=[*FLAGS, *sandbox])
        yield launched
        launched.close()


class Watch:
    """What a window said and asked for that a quiet page does not."""

    def __init__(self, window: Page) -> None:
        self.said: list[str] = []
        self.asked: list[str] = []
        window.on("console", lambda message: self.said.append(message.text))
        window.on("pageerror", lambda error: self.said.append(str(error)))
        window.on("dialog", self.dismiss)
        window.on("request", lambda request: self.asked.append(request.url))

    def dismiss(self, dialog: Dialog) -> None:
        self.said.append(dialog.message)
        dialog.dismiss()


def show(window: Page, files: Path, view: str, name: str = "plain") -> Locator:
    """Open a page at a view, and return its panel."""
    window.goto((files / f"{name}.html").as_uri())
    window.click(f"#tab-{view}")
    return window.locator(f"#panel-{view}")


def tip(window: Page) -> list[str]:
    """Return the lines of the tip that is shown."""
    assert window.locator("#tip").is_visible()
    return window.locator("#tip p").all_text_contents()
