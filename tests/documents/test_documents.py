"""Every code block of README.md and docs/ runs, so that what is shown is what happens.

The blocks of one file run in order in one namespace, in a process of their own: a reader has a
fresh Python too, without the strictness that our tests switch on, and what a document sets globally
stays in it. These processes are forked from one that has imported loopax and run nothing, which saves
each of them two seconds. A ```python block must run through. A ```pycon block shows what comes back,
an error for instance, and is compared as doctest compares, with `...` for what is left out; of an
error only the class counts, because messages have tests of their own.

To run one document by hand: python tests/documents/test_documents.py docs/scan.md
"""

import ast
import doctest
import json
import os
import re
import signal
import subprocess
import sys
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

# An opening fence (it may be indented, in a list), its language, what follows up to the same fence.
FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<language>[\w-]*)[^\n]*\n"
    r"(?P<code>.*?)"
    r"^(?P=indent)(?P=fence) *$",
    re.MULTILINE | re.DOTALL,
)
DOCTEST_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


class Block(NamedTuple):
    language: str
    line: int  # the number of lines before the code
    code: str


def blocks_of(text: str) -> list[Block]:
    """The python and pycon blocks of a Markdown text, in order.

    Other blocks are matched too, and left out afterwards: otherwise the end of one would open the
    next.
    """
    actual = []
    for match in FENCE.finditer(text):
        if match["language"] in ("python", "pycon"):
            indent = re.compile(f"^{match['indent']}", re.MULTILINE)
            line = text.count("\n", 0, match.start("code"))
            actual.append(Block(match["language"], line, indent.sub("", match["code"])))
    return actual


# Packages that a block may import although not every installation has them. Where one is missing, the
# blocks that import it are left out, with later ones that read their names; if the first block of a page
# imports it, so is the page.
OPTIONAL = {
    "pymc": "PyMC 6 needs Python 3.12; it is in the pymc extra",
    "numpyro": "NumPyro is in the extra samplers",
    "blackjax": "BlackJAX is in the extra samplers",
    "statsmodels": "its page compares with statsmodels, which no extra has",
    "stan": "its page compares with Stan, which no extra has",
}
OPTIONAL_IMPORT = re.compile(rf"^(?:import|from) ({'|'.join(OPTIONAL)})\b", re.MULTILINE)


def needs(block: Block) -> list[str]:
    """The packages of `OPTIONAL` that it imports."""
    return OPTIONAL_IMPORT.findall(block.code)


def names_in(block: Block) -> tuple[set[str], set[str]]:
    """The names that a block defines at any level, and those that it reads."""
    code = block.code
    if block.language != "python":
        code = "".join(example.source for example in doctest.DocTestParser().get_examples(code))
    nodes = list(ast.walk(ast.parse(code)))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    defined = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.alias):
            defined.add((node.asname or node.name).partition(".")[0])
    return defined, {node.id for node in names if isinstance(node.ctx, ast.Load)}


def runnable(blocks: list[Block], is_installed: Callable[[str], object]) -> Iterator[Block]:
    """The blocks that need no missing package, and none of the names of the blocks that need one."""
    missing: set[str] = set()
    for block in blocks:
        defined, read = names_in(block)
        if all(map(is_installed, needs(block))) and not read & missing:
            missing -= defined
            yield block
        else:
            missing |= defined


# A run as a user would start it, and as the tests do: a page shows no numbers that are made for tests.
SHORTER = {r"\b(draws|tune)=\d{3,}\b": r"\1=50", r"\bchains=4\b": "chains=1"}


def shortened(code: str) -> str:
    """``code`` with fewer draws and chains."""
    for of_users, of_tests in SHORTER.items():
        code = re.sub(of_users, of_tests, code)
    return code


def test_runs_are_shortened() -> None:
    code = "sample(model, draws=1000, tune=500, chains=4); sample(model, draws=20, chains=2)"
    assert shortened(code) == (
        "sample(model, draws=50, tune=50, chains=1); sample(model, draws=20, chains=2)"
    )


def test_blocks_without_a_package_are_left_out() -> None:
    texts = [
        "import numpy as np",
        "import pymc",
        "m = pymc.Model()",
        "a = np.ones(2)",
        "m = a",
        "m",
    ]
    blocks = [Block("python", 1, text) for text in texts]
    ran = [block.code for block in runnable(blocks, lambda name: name != "pymc")]
    assert ran == ["import numpy as np", "a = np.ones(2)", "m = a", "m"]
    assert [block.code for block in runnable(blocks, lambda name: True)] == texts


def run_document(path: Path) -> None:
    # A module of its own, findable by name: dataclasses and pickle look a class's module up.
    module = types.ModuleType("document")
    sys.modules[module.__name__] = module
    for block in runnable(blocks_of(path.read_text(encoding="utf-8")), find_spec):
        if block.language == "python":
            # The empty lines give tracebacks, and what quotes source lines, the document's own.
            source = "\n" * block.line + shortened(block.code)
            exec(compile(source, str(path), "exec"), module.__dict__)
        else:
            parsed = doctest.DocTestParser().get_doctest(
                block.code, module.__dict__, path.name, str(path), block.line
            )
            parsed.globs = module.__dict__  # not the copy that get_doctest made
            runner = doctest.DocTestRunner(optionflags=DOCTEST_FLAGS)
            if runner.run(parsed, clear_globs=False).failed:
                raise SystemExit(f"{path}: the block at line {block.line} shows something else")


# Code that is much like that of others: README.md and docs/pymc.md sample, state.md replicates.
SLOW = {
    "all_of_loopax.md",
    "index.md",
    "scaling_out.md",
    "from_jax_lax.md",
    "from_pymc.md",
    "from_stan.md",
    "from_statsmodels.md",
}


def cases() -> list[Any]:
    """The documents; those that show what others show run in `make test-all` and `make docs`."""
    actual = []
    for path in DOCUMENTS:
        marks = [pytest.mark.slow] * (path.name in SLOW)
        if any("pymc" in needs(block) for block in blocks_of(path.read_text(encoding="utf-8"))):
            marks.append(pytest.mark.both_stacks)
        actual.append(pytest.param(path, marks=marks))
    return actual


def serve() -> None:
    """Run the documents that stdin names, each in a child; write the exit status of each."""
    import loopax  # noqa: F401  (what all documents import: once, for all children)

    for line in sys.stdin:
        request = json.loads(line)
        with warnings.catch_warnings():
            # Python and JAX warn of threads that a child has not: here are BLAS's, which start again.
            warnings.simplefilter("ignore")
            child = os.fork()
        if child == 0:
            run_in_child(**request)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def run_in_child(path: str, folder: str, output: str, environment: dict[str, str]) -> None:
    """Run one document with what it prints in ``output``, and end this process."""
    status = 1
    try:
        written = os.open(output, os.O_WRONLY | os.O_CREAT)
        for stream in (1, 2):
            os.dup2(written, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        run_document(Path(path))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


@pytest.fixture(scope="module")
def run() -> Iterator[Callable[[Path, Path], tuple[int, str]]]:
    """A function of a document and a folder to run it in: the exit status, and what was printed."""
    # What is about to disappear from PyTensor or JAX does not belong in a document. -P: the folder
    # of this file is not where a document's imports are looked for.
    options = ["-P", "-W", "error::DeprecationWarning", "-W", "error::FutureWarning"]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    fixed = {"PYTHONPATH": path, "MPLBACKEND": "Agg"}  # no picture waits for someone to close it
    servers: dict[str | None, Any] = {}  # by what an import reads of the environment

    def server() -> Any:
        loops = os.environ.get("LOOPAX_LOOPS")
        if loops not in servers:
            started = subprocess.Popen(
                [sys.executable, *options, __file__, "--serve"],
                env=environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            # Leaving the context closes its stdin, and so ends it.
            servers[loops] = closing.enter_context(started)
        return servers[loops]

    def environment() -> dict[str, str]:
        """That of this process, without the devices that an import of pymc.sampling.jax asks for."""
        flags = os.environ.get("XLA_FLAGS", "").split()
        kept = [flag for flag in flags if "force_host_platform_device_count" not in flag]
        return {**os.environ, "XLA_FLAGS": " ".join(kept), **fixed}

    def run(document: Path, folder: Path) -> tuple[int, str]:
        output = folder / "printed.txt"
        request = {"path": str(document), "folder": str(folder), "output": str(output)}
        server().stdin.write(json.dumps({**request, "environment": environment()}) + "\n")
        server().stdin.flush()
        try:
            status = int(server().stdout.readline())
        except BaseException:  # a time limit: the answer, when it comes, is not the next document's
            os.killpg(servers.pop(os.environ.get("LOOPAX_LOOPS")).pid, signal.SIGKILL)
            raise
        return status, output.read_text(encoding="utf-8")

    with ExitStack() as closing:
        yield run


@pytest.mark.sampled(6)
@pytest.mark.parametrize("path", cases(), ids=lambda path: str(path.relative_to(ROOT)))
def test_code_blocks_run(
    path: Path,
    run: Callable[[Path, Path], tuple[int, str]],
    tmp_path: Path,
    pytestconfig: pytest.Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = path.read_text(encoding="utf-8")
    blocks = blocks_of(text)
    if not blocks:
        return
    for package in needs(blocks[0]):
        pytest.importorskip(package, reason=OPTIONAL[package])
    # As a user has it, where loops may be native code; in `make test` only if that is what is shown.
    if pytestconfig.option.markexpr != "not slow" or re.search("loopax_kernel|are_native", text):
        monkeypatch.delenv("LOOPAX_LOOPS")
    status, printed = run(path, tmp_path)  # what a block writes stays out of the checkout
    assert status == 0, printed


TEXT = """\
A text.

```python
x = 1
```

~~~sh
make test
~~~

- In a list:

  ```python
  def f():
      return x
  ```

```pycon
>>> y = f()
>>> y + 1
2
>>> f(1)
Traceback (most recent call last):
    ...
TypeError: f() takes no argument
```

```python
assert y == 1
```
"""


def test_blocks_are_found() -> None:
    assert [(block.language, block.line) for block in blocks_of(TEXT)] == [
        ("python", 3),
        ("python", 13),
        ("pycon", 18),
        ("python", 28),
    ]
    assert blocks_of(TEXT)[1].code == "def f():\n    return x\n"


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("", "", None),
        ("y == 1", "y == 2", "AssertionError"),
        (">>> y + 1\n2", ">>> y + 1\n3", "Expected:\n *3"),
        ("TypeError", "ValueError", "line 18 shows something else"),
    ],
)
def test_a_wrong_block_fails(tmp_path: Path, old: str, new: str, match: str | None) -> None:
    document = tmp_path / "document.md"
    document.write_text(TEXT.replace(old, new) if old else TEXT, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-P", __file__, str(document)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    if match is None:
        assert done.returncode == 0, done.stdout + done.stderr
    else:
        assert done.returncode != 0
        assert re.search(match, done.stdout + done.stderr)


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["--serve"] else run_document(Path(sys.argv[1]))
