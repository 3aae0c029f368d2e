"""The documentation as a site: what it is made of is there, and its links hold; `make docs` builds it."""

import ast
import importlib
import inspect
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import types
from importlib.util import find_spec
from pathlib import Path

import pytest

import loopax
from examples.gallery import page
from loopax.demo import gallery
from tests.documents.test_documents import DOCUMENTS, blocks_of

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
MADE = {f"gallery/{name}.md" for name in (*page.EXAMPLES, "index")} | {"changelog.md"}
NAV = re.findall(
    r"^ +- (?:.*: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE
)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^( *)(```|~~~).*?^\1\2 *$", re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """Those of a page's headings, as GitHub and mkdocs make them."""
    titles = re.findall(r"^#+ (.*)$", FENCED.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def broken_links(path: Path, text: str) -> list[str]:
    """Links of a page to a file or a heading that is not there; pages that the site makes are."""
    broken = []
    for link in LINK.findall(FENCED.sub("", text)):
        name, _, anchor = link.partition("#")
        target = Path(os.path.normpath(path.parent / name)) if name else path
        if link.startswith(("https:", "http:")):
            continue
        if target.is_relative_to(DOCS) and target.relative_to(DOCS).as_posix() in MADE:
            continue
        if not target.exists() or (anchor and anchor not in anchors(target.read_text("utf-8"))):
            broken.append(link)
    return broken


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_hold(path: Path) -> None:
    assert not broken_links(path, path.read_text(encoding="utf-8"))


def test_a_broken_link_is_seen() -> None:
    text = "[a](state.md#contexts) [b](state.md#nothing) [c](nowhere.md) [d](gallery/nile.md)"
    assert broken_links(DOCS / "index.md", text) == ["state.md#nothing", "nowhere.md"]


def test_every_page_is_in_the_navigation_once() -> None:
    there = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert sorted(NAV) == sorted(there | MADE)


CHEAT_SHEET = re.compile(r"^\| `([\w.]+)` \| (.*) \|$", re.MULTILINE)
DOCUMENTED = re.compile(r"^::: loopax\.(pymc\.|)(?:.*\.)?(\w+)$", re.MULTILINE)
PUBLIC = [loopax, *([importlib.import_module("loopax.pymc")] if find_spec("pymc") else [])]


def test_each_public_name_is_in_the_reference_once() -> None:
    """In the cheat sheet, with the first paragraph of its docstring, and on the page of its family."""
    sheet = (DOCS / "api.md").read_text(encoding="utf-8")
    rows = dict(CHEAT_SHEET.findall(sheet))
    pages = sorted((DOCS / "api").glob("*.md"))
    names = [
        "".join(parts)
        for path in pages
        for parts in DOCUMENTED.findall(path.read_text(encoding="utf-8"))
    ]
    assert sorted(names) == sorted(rows)
    for module in PUBLIC:
        for name in module.__all__:
            value = getattr(module, name)
            if name.startswith("__") or inspect.ismodule(value):
                continue
            is_record = not (inspect.isclass(value) or inspect.isroutine(value))
            documented = type(value) if is_record else value
            first = inspect.getdoc(documented).partition("\n\n")[0]
            prefix = module.__name__.removeprefix("loopax").lstrip(".")
            row = rows[".".join(filter(None, (prefix, documented.__name__)))]
            assert row == first.replace("\n", " ").replace("``", "`"), name


def test_the_readme_is_short_and_says_what_to_run() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 95
    commands = {line.partition("#")[0].strip() for line in lines}
    assert {"make demo", "make test"} <= commands


def test_links_of_the_packages_page_lead_into_the_repository(monkeypatch) -> None:
    build = types.ModuleType("hatchling.metadata.plugin.interface")
    build.MetadataHookInterface = type("MetadataHookInterface", (), {"root": ROOT})
    monkeypatch.setitem(sys.modules, build.__name__, build)  # it is there when a package is built
    actual = {}
    runpy.run_path(str(ROOT / "hatch_build.py"))["PackagePage"]().update(actual)
    address = actual["urls"]["Repository"]
    assert f"]({address}/blob/main/docs/install.md)" in actual["readme"]["text"]
    assert f"]({address}/raw/main/docs/gallery/overview.svg)" in actual["readme"]["text"]
    assert re.findall(r"\]\((?!https://).*?\)", actual["readme"]["text"]) == []


@pytest.mark.parametrize("name", page.EXAMPLES)
def test_a_page_of_the_gallery_is_its_script(name: str) -> None:
    source = page.source(name)
    title, cells = page.cells(source)
    text = page.page(name)
    assert text.startswith(f"# {title}\n") and len(title) < 80
    code = [content for kind, content in cells if kind == "code"]
    # Every line of code is on the page, in order, and it is a program.
    compile("\n".join(code), name, "exec")
    written = [line for line in source.splitlines() if line and not line.startswith("#")]
    assert "\n".join(code).split()[-20:] == " ".join(written).split()[-20:]
    assert all(block in text for block in code)
    assert "figure = Figure(" in source and "assert" in source + Path(gallery.__file__).read_text(
        "utf-8"
    )


@pytest.mark.parametrize("name", page.EXAMPLES)
def test_an_example_can_be_downloaded(name: str) -> None:
    """As a script and as a notebook, which need no clone."""
    program = ast.parse(page.download(name))
    imported = {
        alias.name if isinstance(node, ast.Import) else node.module
        for node in ast.walk(program)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert not {module.partition(".")[0] for module in imported} & {
        "examples",
        "benchmarks",
        "tests",
    }
    last = program.body[-1]
    last = last.body[-1] if isinstance(last, ast.If) else last
    assert ast.unparse(last) == f"figure.savefig('{name}.png')"
    notebook = json.loads(page.notebook(name))
    code = ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]
    compile("\n".join(code), name, "exec")
    assert code[-1].endswith(f'Image("{name}.png")') and notebook["nbformat"] == 4
    text = page.page(name)
    assert f"[script]({name}.py)" in text and f"[notebook]({name}.ipynb)" in text
    assert f"`loopax[{','.join(page.extras(name))}]`" in text


@pytest.mark.parametrize("name", page.EXAMPLES)
def test_what_came_with_the_code_is_small_and_whole(name: str) -> None:
    picture, record = DOCS / "gallery" / f"{name}.png", DOCS / "gallery" / f"{name}.json"
    assert 5_000 < picture.stat().st_size < 60_000
    kept = json.loads(record.read_text(encoding="utf-8"))
    assert kept["printed"] and kept["machine"]
    assert all(0 < ratio < 100 for ratio in kept["ratios"].values()) and kept["ratios"]


WIDEST = 80  # characters of code that a page shows on a desktop without scrolling


def wide_lines(code: str) -> list[str]:
    """Lines that are too wide, without strings and messages, which nothing can break."""
    return [
        line
        for line in code.splitlines()
        if len(line) > WIDEST and not re.search(r"""^ *f?["']|^[\w.]+(Error|Exception): """, line)
    ]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_code_fits_a_page(path: Path) -> None:
    blocks = blocks_of(path.read_text(encoding="utf-8"))
    assert [line for block in blocks for line in wide_lines(block.code)] == []


@pytest.mark.parametrize("name", page.EXAMPLES)
def test_code_of_an_example_fits_a_page(name: str) -> None:
    code = [content for kind, content in page.cells(page.source(name))[1] if kind == "code"]
    assert wide_lines("\n".join(code)) == []


def test_wide_lines_are_seen() -> None:
    wide = f"x = {'1 + ' * 20}1"
    assert wide_lines(f"{wide}\nValueError: {'x' * 90}\n'{'x' * 90}'") == [wide]


def test_data_name_their_source() -> None:
    tables = sorted(gallery.DATA.glob("*.csv"))
    assert tables
    for table in tables:
        first = table.read_text(encoding="utf-8").partition("\n")[0]
        assert re.match(r"# .{40,}\(\d{4}\)", first), table.name


def test_cells() -> None:
    source = (
        '"""A title\n\nText.\n"""\n\nimport a\n\n# %%\n# More\n# text.\n\nb = 1\n\n# %%\n\nc = 2\n'
    )
    assert page.cells(source) == (
        "A title",
        [
            ("text", "Text."),
            ("code", "import a"),
            ("text", "More\ntext."),
            ("code", "b = 1"),
            ("code", "c = 2"),
        ],
    )


def test_the_overview_has_a_row_for_each_record(tmp_path: Path) -> None:
    overview = pytest.importorskip("examples.gallery.overview", reason="matplotlib draws it")
    overview.draw(tmp_path)
    assert not any(tmp_path.iterdir())  # there is nothing to draw
    for name in ("garch", "nile"):
        shutil.copy(DOCS / "gallery" / f"{name}.json", tmp_path)
    overview.draw(tmp_path)
    drawn = (tmp_path / "overview.svg").read_text(encoding="utf-8")
    assert "<!-- GARCH -->" in drawn and "<!-- Nile -->" in drawn and "<!-- SIR -->" not in drawn
    assert "prefers-color-scheme: dark" in drawn and "#ffffff" not in drawn.partition("</style>")[2]


def test_a_check_runs_smaller_sizes() -> None:
    runner = pytest.importorskip("examples.gallery.__main__", reason="matplotlib draws")
    code = 'run = {"draws": 1000, "tune": 700}; f(data_sets=1000, steps=1000, draws=50)'
    assert runner.shortened(code) == (
        'run = {"draws": 100, "tune": 100}; f(data_sets=100, steps=1000, draws=50)'
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", page.EXAMPLES)
def test_examples_of_the_gallery_run(name: str, tmp_path: Path) -> None:
    for package in page.needs(name):
        pytest.importorskip(package, reason=page.OPTIONAL[package])
    command = [sys.executable, "-m", "examples.gallery", name, "--check", "--to", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {f"{name}.png", f"{name}.json"}


@pytest.mark.slow
@pytest.mark.skipif(find_spec("mkdocs") is None, reason="mkdocs is in the docs extra")
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    index = json.loads((tmp_path / "search" / "search_index.json").read_text(encoding="utf-8"))
    assert {"gallery/garch.html", "api/loops.html"} <= {d["location"] for d in index["docs"]}
    pages = {
        page.stem: page.read_text(encoding="utf-8") for page in (tmp_path / "api").glob("*.html")
    }
    api = {name: re.sub(r"<[^>]+>", "", text) for name, text in pages.items()}
    assert "jaxify" in api["programs"] and "scan" in api["loops"]
    assert not [n for n, text in api.items() if "_NOTHING" in text or "**unknown" in text]
    loaded = re.compile(r'<(?:script|img|link|iframe)[^>]+(?:src|href)="(https?:)?//')
    for built in tmp_path.rglob("*.html"):
        assert not loaded.search(built.read_text(encoding="utf-8")), built.name
