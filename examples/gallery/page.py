"""Pages of the documentation made of the scripts: text, code, picture, and what they printed.

A script is read as Python's editors read it: `# %%` opens a cell, comments that follow at once are its
text, the rest is code. The docstring opens the page; its first line is the title.
"""

import ast
import html
import json
import re
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
# The pictures and records that came with the code: of one machine, which they name.
RESULTS = ROOT / "docs" / "gallery"
# In the order of the gallery; what each is there for.
EXAMPLES = {
    "garch": "Native code for the search, JAX for the standard errors",
    "nile": "A filter inside a model, sampled in one line",
    "lotka_volterra": "A differential equation inside a model",
    "sir": "A differential equation with a rate that changes on an unknown day",
    "hidden_markov": "The forward algorithm, whose gradient gives the smoothed states",
    "airline": "A state with fourteen components, and forecasts",
    "stochastic_volatility": "A latent path of three hundred values",
    "reinforcement_learning": "A table in the carry; all players in parallel",
    "gaussian_process": "A loop in place of a large matrix",
    "mixture": "An unchanged PyMC model without a loop",
    "gibbs_sampler": "Updates of shared variables; a hundred chains by vmap",
    "resumed_run": "A run that resumes after a stop, with the draws of a run without a stop",
    "calibration": "One native function, called by a pool of processes",
    "nan_hunt": "Three failures, and the step, line and cause of each",
    "numpyro_garch": "A NumPyro model and its sampler become native, in one line",
    "particle_filter": "Draws and a search inside the loop",
}


def script(name):
    """The path of an example."""
    return HERE / f"{name}.py"


# Packages that an example may need, and that are not in every installation.
OPTIONAL = {
    "pymc": "PyMC 6 needs Python 3.12",
    "numpyro": "NumPyro is in the extra samplers",
}
EXTRAS = {"pymc": "pymc", "numpyro": "samplers"}


def needs(name):
    """The packages of `OPTIONAL` that an example imports."""
    text = source(name).replace(" as pm", "")
    return [
        package for package in OPTIONAL if f"import {package}\n" in text
    ]


def source(name):
    """The program of an example; a module of `examples` that it imports is written into it."""
    text = script(name).read_text(encoding="utf-8")
    for line, module in re.findall(
        r"^(from examples import (\w+)\n)", text, re.MULTILINE
    ):
        imports, model = parts(
            (HERE.parent / f"{module}.py").read_text(encoding="utf-8")
        )
        new = "".join(
            f"{each}\n" for each in imports if f"{each}\n" not in text
        )
        text = re.sub(rf"\b{module}\.(?!py\b)", "", text.replace(line, new))
        at = next(
            node
            for node in ast.parse(text).body[1:]
            if not isinstance(node, IMPORTS)
        ).lineno
        lines = text.splitlines(keepends=True)
        text = "".join([*lines[: at - 1], model, "\n\n", *lines[at - 1 :]])
    return text


IMPORTS = ast.Import, ast.ImportFrom


def parts(text):
    """The imports of a script, and what it defines: without its docstring and `main`."""
    segments = [
        (
            isinstance(node, IMPORTS),
            "\n".join(text.splitlines()[node.lineno - 1 : node.end_lineno]),
        )
        for node in ast.parse(text).body[1:]
        if not isinstance(node, ast.If)
        and getattr(node, "name", "") != "main"
    ]
    imports = [segment for is_import, segment in segments if is_import]
    model = "".join(
        f"\n\n{segment}\n" if segment.startswith("def ") else f"{segment}\n"
        for is_import, segment in segments
        if not is_import
    )
    return imports, model.strip("\n")


def cells(source):
    """The title, and ("text" | "code", content) in order."""
    docstring = ast.get_docstring(tree := ast.parse(source))
    title, _, opening = docstring.partition("\n")
    contents = [("text", opening.strip())]
    code = source.splitlines()[tree.body[0].end_lineno :]
    for cell in "\n".join(code).split("\n# %%\n"):
        lines = cell.splitlines()
        text = 0
        while text < len(lines) and lines[text].startswith("#"):
            text += 1
        contents.append(
            (
                "text",
                "\n".join(
                    line.removeprefix("#").strip() for line in lines[:text]
                ),
            )
        )
        contents.append(("code", "\n".join(lines[text:]).strip("\n")))
    return title, [(kind, content) for kind, content in contents if content]


def page(name):
    """The Markdown of an example's page."""
    title, contents = cells(source(name))
    lines = [f"# {title}", ""]
    lines += [f"![{title}]({name}.png)", ""]
    for kind, content in contents:
        lines += (
            [content, ""]
            if kind == "text"
            else ["```python", content, "```", ""]
        )
    record = read_record(name)
    lines += [
        "## Output",
        "",
        "```text",
        record["printed"].rstrip(),
        "```",
        "",
    ]
    lines += [f"On {record['machine']}. {OF_TIMES}", ""]
    lines += [
        f"**Download**: [script]({name}.py), [notebook]({name}.ipynb). "
        f"They need `loopax[{','.join(extras(name))}]`.",
        "",
    ]
    return "\n".join(lines)


def extras(name):
    """The extras of loopax that an example needs; `demo` has matplotlib and SciPy."""
    return ["demo", *(EXTRAS[package] for package in needs(name))]


def download(name):
    """The script of an example as a program of its own, which saves its picture."""
    text = source(name).rstrip()
    # A script that starts processes makes its figure in `if __name__ == "__main__":`.
    is_guarded = isinstance(ast.parse(text).body[-1], ast.If)
    indent = "    " if is_guarded else "\n"
    return f'{text}\n{indent}figure.savefig("{name}.png")\n'


def shown(name):
    """The code that shows the picture: a notebook draws no figure that was made without pyplot."""
    return (
        "from IPython.display import Image\n\n"
        f'figure.savefig("{name}.png")\nImage("{name}.png")'
    )


def notebook(name):
    """An example as a Jupyter notebook; its last cell shows the picture."""
    title, contents = cells(source(name))
    contents = [("text", f"# {title}"), *contents, ("code", shown(name))]
    written = [
        {
            "id": f"cell-{k}",
            "cell_type": "markdown" if kind == "text" else "code",
            "metadata": {},
            "source": content.splitlines(keepends=True),
        }
        | (
            {}
            if kind == "text"
            else {"execution_count": None, "outputs": []}
        )
        for k, (kind, content) in enumerate(contents)
    ]
    kernel = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    return json.dumps(
        {
            "cells": written,
            "metadata": {"kernelspec": kernel},
            "nbformat": 4,
            "nbformat_minor": 5,
        },
        indent=1,
    )


OF_TIMES = (
    "Times are medians of alternating calls, without compilation. "
    "A ratio below 1 means that loopax is faster."
)


def read_record(name):
    """What is kept of a run of an example: printed, ratios, machine."""
    return json.loads(
        (RESULTS / f"{name}.json").read_text(encoding="utf-8")
    )


def index():
    """The Markdown of the gallery: a card for each example, and the ratios of all."""
    cards = []
    for name, what in EXAMPLES.items():
        title, _ = cells(script(name).read_text(encoding="utf-8"))
        cards.append(
            f"-   [![{title}]({name}.png)]({name}.md)\n\n    **[{title}]({name}.md)**\n\n    {what}.\n"
        )
    return "\n".join(
        [
            OPENING,
            '<div class="grid cards" markdown>',
            "",
            *cards,
            "</div>",
            "",
            table(),
        ]
    )


def table():
    """Every ratio that the examples have printed."""
    rows = ["| example | compared | ratio |", "|---|---|---|"]
    for name in EXAMPLES:
        for compared, ratio in read_record(name)["ratios"].items():
            rows.append(
                f"| [{name.replace('_', ' ')}]({name}.md) | {html.escape(compared)} | {ratio:.2g} |"
            )
    return "\n".join(
        [
            "## Times",
            "",
            "Each ratio is loopax's time divided by the time of the baseline after the slash. "
            f"{OF_TIMES}",
            "",
            *rows,
            "",
        ]
    )


OPENING = """\
# Gallery

Models that people fit in practice, with their data. Each page compares its numbers and times with
PyMC, PyTensor or a published result. Each page is a script: download it, or its notebook, at the end
of the page, and run it wherever loopax is installed.

![Time of one call for each model, compared with PyMC or PyTensor](overview.svg)
"""
