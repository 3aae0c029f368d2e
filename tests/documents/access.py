"""``python -m tests.documents.access SITE``: axe on each page of a built site, and its width on a phone.

`axe <https://github.com/dequelabs/axe-core>`_ checks each page in a browser, in light and dark. It comes
with the extra `access`; the browser is the Chromium or Chrome of the system.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

BROWSERS = "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"
SCHEMES = "light", "dark"
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 740}
SERIOUS = "serious", "critical"


class Finding(NamedTuple):
    """A fault of a page that keeps readers out."""

    page: str
    scheme: str
    rule: str
    element: str

    def __str__(self) -> str:
        return f"{self.page} ({self.scheme}): {self.rule}: {self.element}"


def browser() -> str | None:
    """The path of a browser that is installed, if there is one."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def findings(site: Path) -> Iterator[Finding]:
    """The serious findings of axe on each page of ``site``, and the pages that are wider than a phone."""
    from axe_playwright_python.sync_playwright import Axe
    from playwright.sync_api import sync_playwright

    axe = Axe()
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser(), args=["--no-sandbox"])
        for scheme in SCHEMES:
            context = chromium.new_context(color_scheme=scheme, reduced_motion="reduce")
            tab = context.new_page()
            for name in pages(site):
                tab.set_viewport_size(DESKTOP)
                tab.goto((site / name).resolve().as_uri())
                for rule, element in serious(axe.run(tab).response):
                    yield Finding(name, scheme, rule, element)
                tab.set_viewport_size(PHONE)
                width = tab.evaluate("document.documentElement.scrollWidth")
                if width > PHONE["width"]:
                    yield Finding(name, scheme, "wider than the screen", f"{width} pixels")
            context.close()


def pages(site: Path) -> list[str]:
    """The pages of a site but for that of a missing address, whose links begin at a server's root."""
    actual = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))
    return [name for name in actual if name != "404.html"]


def serious(response: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The rule and the element of each serious finding in a response of axe."""
    for violation in response["violations"]:
        if violation["impact"] in SERIOUS:
            for node in violation["nodes"]:
                yield violation["id"], node["html"][:160]


def main(site: Path) -> int:
    """Print what is found; the exit status."""
    if browser() is None:
        print(f"No browser was found. Install one of these: {', '.join(BROWSERS)}.")
        return 2
    if not (n := len(pages(site))):
        print(f"There is no page in {site}. `make docs` builds the site into out/site.")
        return 2
    actual = list(findings(site))
    print("\n".join(map(str, actual)) or f"No serious finding on {n} pages, in light and dark.")
    return int(bool(actual))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
