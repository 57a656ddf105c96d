"""Debian's chromium, driven headless; tests that need it skip where it is not there."""

from __future__ import annotations

import pathlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome")
#: How long to wait for a page, in seconds; docs/page.md has what it takes.
WAIT_S = 30.0


def chromium() -> str:
    """Where the browser is; skips the test where there is none."""
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no chromium on this machine")
    return found


@dataclass
class Visit:
    """A page that was opened, and what it said and asked for meanwhile."""

    page: Any
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def text(self, selector: str) -> str:
        """What one reads there; no-break spaces as spaces."""
        return self.page.inner_text(selector).replace("\u00a0", " ")

    def is_silent(self) -> bool:
        """No word on the console, and nothing asked for but the page itself."""
        return not self.console and len(self.requests) == 1

    def settle(self) -> None:
        """Wait until motion has ended and all is drawn."""
        self.page.wait_for_timeout(350)


@contextmanager
def browser() -> Iterator[Any]:
    """A running browser."""
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox"]
        )
        yield running
        running.close()


@contextmanager
def visit(
    running: Any,
    file: pathlib.Path,
    *,
    width: int = 1400,
    height: int = 1000,
    theme: str = "light",
    watch: str = "",
) -> Iterator[Visit]:
    """Open a page file and wait until it has drawn; `watch` is a script that runs first."""
    context = running.new_context(
        viewport={"width": width, "height": height}, color_scheme=theme
    )
    if watch:
        context.add_init_script(watch)
    seen = Visit(context.new_page())
    seen.page.on("console", lambda message: seen.console.append(message.text))
    seen.page.on("pageerror", lambda problem: seen.console.append(str(problem)))
    seen.page.on("request", lambda request: seen.requests.append(request.url))
    seen.page.goto(file.as_uri())
    # Not by evaluating: the page forbids that to everyone.
    seen.page.wait_for_selector(
        "html[data-drawn='1']", state="attached", timeout=WAIT_S * 1e3
    )
    yield seen
    context.close()
