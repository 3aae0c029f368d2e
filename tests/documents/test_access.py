"""Colors of the site stand out in light and dark, and each picture has a text.

The colors are read from `docs/assets/site.css` and held against the backgrounds of the theme. The Web
Content Accessibility Guidelines 2.2 ask for a contrast of 4.5 for text of this size.
"""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from examples.gallery import page
from tests.documents import access

ROOT = Path(__file__).resolve().parents[2]
CSS = (ROOT / "docs" / "assets" / "site.css").read_text(encoding="utf-8")
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ENOUGH = 4.5
# Backgrounds of mkdocs-material: of the page, and of code.
BACKGROUNDS = {"default": ("#ffffff", "#f5f5f5"), "slate": ("#1e2129", "#272a35")}
RULE = re.compile(r'\[data-md-color-scheme="(\w+)"\][^{]*\{([^}]*)\}')
COLOR = re.compile(r"--(md-[\w-]+-color[\w-]*):\s*(#[0-9a-f]{6})")
# The footer has a background of its own, dark in both schemes.
FOOTER = ("md-footer-fg-color--lighter",)
IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)|<img\b[^>]*>")


def luminance(color: str) -> float:
    """Relative luminance of ``#rrggbb``, after the guidelines."""
    channels = [int(color[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, second: str) -> float:
    """The contrast ratio of two colors, from 1 to 21."""
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def colors() -> list[tuple[str, str, str]]:
    """The scheme, the name and the value of each text color in the style sheet."""
    return [
        (scheme, name, value)
        for scheme, rules in RULE.findall(CSS)
        for name, value in COLOR.findall(rules)
        if name not in FOOTER
    ]


def test_contrast() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)  # just too low


def test_the_style_sheet_sets_colors_of_both_schemes() -> None:
    names = {scheme: {n for s, n, _ in colors() if s == scheme} for scheme in BACKGROUNDS}
    assert len(names["default"]) > 10 and names["default"] <= names["slate"]


@pytest.mark.parametrize(("scheme", "name", "value"), colors())
def test_text_stands_out_from_its_background(scheme: str, name: str, value: str) -> None:
    ratios = {background: contrast(value, background) for background in BACKGROUNDS[scheme]}
    assert min(ratios.values()) >= ENOUGH, ratios


def texts() -> dict[str, str]:
    """The Markdown of each page, the pages of the gallery included."""
    written = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in DOCUMENTS}
    return written | {name: page.page(name) for name in page.EXAMPLES} | {"gallery": page.index()}


def images_without_text(text: str) -> list[str]:
    """The images of a Markdown text that a screen reader would not describe."""
    return [
        image[0]
        for image in IMAGE.finditer(text)
        if not (image[1] or (re.search(r'\balt="[^"]+"', image[0])))
    ]


def test_each_picture_has_a_text() -> None:
    assert images_without_text('![](a.png) ![A](a.png) <img src="a"> <img alt="A" src="a">') == [
        "![](a.png)",
        '<img src="a">',
    ]
    actual = {
        name: images for name, text in texts().items() if (images := images_without_text(text))
    }
    assert actual == {}


def test_each_picture_of_the_documents_is_there() -> None:
    missing = [
        f"{path.name}: {target}"
        for path in DOCUMENTS
        for _, target in IMAGE.findall(path.read_text(encoding="utf-8"))
        if target and "://" not in target and not (path.parent / target).exists()
    ]
    assert missing == []


FAULTY = """<!DOCTYPE html><html lang="en"><head><title>Faults</title></head><body><main>
<h1 style="color:#999;background:#fff">Pale</h1><img src="a.png"><div style="width:500px">Wide</div>
</main></body></html>"""


@pytest.mark.skipif(find_spec("axe_playwright_python") is None, reason="it is in the extra access")
@pytest.mark.skipif(access.browser() is None, reason="there is no browser")
def test_axe_finds_the_faults_of_a_page(tmp_path: Path) -> None:
    (tmp_path / "faulty.html").write_text(FAULTY, encoding="utf-8")
    rules = {finding.rule for finding in access.findings(tmp_path)}
    assert {"color-contrast", "image-alt", "wider than the screen"} <= rules


def test_there_are_pages_to_check(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(access, "browser", lambda: "chromium")
    (tmp_path / "404.html").touch()
    assert access.main(tmp_path) == 2 and "There is no page" in capsys.readouterr().out
