"""Hooks of mkdocs: the pages that are made, and the links that leave `docs/`.

Pages of the gallery are made of `examples/gallery/*.py` and the records in `docs/gallery`; the change log
is CHANGELOG.md; the drawing on the page of the passes is what `loopax.explain(f).to_html` writes.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from mkdocs.structure.files import File

from examples.gallery import page

# The page of the passes says how a drawing is written; on the site it is there.
DRAWN = '.to_html("curvature.html")\n```'
# Where a link leads on the site that leads out of `docs/` in the checkout.
ELSEWHERE = {
    "../examples/gallery/README.md": "gallery/index.md",
    "../examples/README.md": "gallery/index.md",
    "../CHANGELOG.md": "changelog.md",
    DRAWN: DRAWN + "\n\n[That page](assets/curvature.html).",
}
# In the change log, which stands one folder higher.
FROM_ABOVE = {"](docs/": "]("}


def on_files(files, config):
    """Add what is made."""

    def add(uri, content):
        files.append(File.generated(config, uri, content=content))

    add("gallery/index.md", content=page.index())
    for name in page.EXAMPLES:
        add(f"gallery/{name}.md", content=page.page(name))
        add(f"gallery/{name}.py", content=page.download(name))
        add(f"gallery/{name}.ipynb", content=page.notebook(name))
    changes = (page.ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    add("changelog.md", content=replaced(changes, FROM_ABOVE))
    add("assets/curvature.html", content=drawing())
    return files


def on_page_markdown(markdown, page, config, files):
    """Links that leave `docs/` in the checkout stay on the site."""
    return replaced(markdown, ELSEWHERE)


def replaced(text, table):
    """``text`` with each key of ``table`` replaced by its value."""
    for old, new in table.items():
        text = text.replace(old, new)
    return text


def drawing():
    """The page that `explain` draws of the second derivative on the page of the passes."""
    import pytensor
    import pytensor.tensor as pt

    import loopax

    x0 = pt.dscalar("x0")
    xs = pytensor.scan(
        lambda x: x**2, outputs_info=[x0], n_steps=4, return_updates=False
    )
    curvature = pytensor.grad(pytensor.grad(xs[-1], x0), x0)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "curvature.html"
        loopax.explain([x0], curvature).to_html(path)
        return path.read_text(encoding="utf-8")
