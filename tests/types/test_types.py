"""loopax to type checkers: a user's script has no errors, and what is misspelt is one."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from loopax import jaxify
from loopax.calling import backend_named
from loopax.options import BackendName, BuildOptions, Options

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SCRIPTS = ("user_script.py", "misspelt.py")

Errors = dict[str, dict[int, str]]  # of each script, by line

pytestmark = (
    pytest.mark.both_stacks
)  # the checkers are installed on one of them, with the extra `lint`


def _run(*command: str, at: Path) -> str:
    # loopax is where a user has it: with the other packages, and no part of what is checked.
    actual = subprocess.run(
        command, cwd=at, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True, capture_output=True
    )
    assert actual.returncode in (0, 1), actual.stdout + actual.stderr
    return actual.stdout


def by_mypy(at: Path) -> Errors:
    if find_spec("mypy") is None:
        pytest.skip("mypy is not installed; it is in the extra lint")
    cache = f"--cache-dir={ROOT / '.mypy_cache' / 'users'}"  # without it takes half a minute
    said = _run(sys.executable, "-m", "mypy", "--strict", "--config-file=", cache, *SCRIPTS, at=at)
    lines = re.findall(r"^(.+?):(\d+): error: (.*)", said, re.MULTILINE)
    return {name: {int(line): text for of, line, text in lines if of == name} for name in SCRIPTS}


def by_pyright(at: Path) -> Errors:
    # The first has the Node that it runs on in its wheel, and the same rules.
    beside = str(Path(sys.executable).parent)
    names = "basedpyright", "pyright"
    program = next(
        filter(None, (shutil.which(n, path=beside) or shutil.which(n) for n in names)), None
    )
    if program is None:
        pytest.skip("pyright is not installed; it is in the extra lint, as basedpyright")
    settings = {"typeCheckingMode": "standard", "extraPaths": [str(ROOT)], "include": [*SCRIPTS]}
    (at / "pyrightconfig.json").write_text(json.dumps(settings))
    said = _run(program, "-p", ".", "--outputjson", "--pythonpath", sys.executable, at=at)
    actual = [d for d in json.loads(said)["generalDiagnostics"] if d["severity"] == "error"]
    return {
        name: {
            d["range"]["start"]["line"] + 1: d["message"]
            for d in actual
            if Path(d["file"]).name == name
        }
        for name in SCRIPTS
    }


@pytest.fixture(scope="module", params=[by_mypy, by_pyright], ids=["mypy", "pyright"])
def errors(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Errors:
    at = tmp_path_factory.mktemp("project")
    for name in SCRIPTS:
        shutil.copy(HERE / name, at)
    check: Callable[[Path], Errors] = request.param
    return check(at)


@pytest.mark.slow
def test_a_users_script_has_no_errors(errors: Errors) -> None:
    assert errors["user_script.py"] == {}


def test_what_is_misspelt_is_an_error_and_nothing_else(errors: Errors) -> None:
    lines = (HERE / "misspelt.py").read_text().splitlines()
    marked = {k for k, line in enumerate(lines, 1) if line.endswith("# refused")}
    assert set(errors["misspelt.py"]) == marked, errors["misspelt.py"]


def test_the_types_of_options_are_those_of_all_options() -> None:
    graph = {"fn", "outputs", "updates", "givens", "backend", "unknown"}
    assert Options.__optional_keys__ == {*signature(jaxify).parameters} - graph
    assert set(get_args(BackendName)) == {"jax", "numba"}
    hints = get_type_hints(BuildOptions)
    for option, values in backend_named("jax").choices.items():
        assert _values(hints[option]) - {None} == set(values), option


def _values(hint: Any) -> set[Any]:
    """All values of literals, of bool and of None in a type."""
    if hint is bool:
        return {True, False}
    if hint is type(None):
        return {None}
    return {v for arg in get_args(hint) for v in (_values(arg) if _is_type(arg) else {arg})}


def _is_type(x: Any) -> bool:
    return isinstance(x, type) or bool(get_args(x))


def test_sample_names_every_argument_of_pymc() -> None:
    pm = pytest.importorskip("pymc", reason="PyMC 6 needs Python 3.12; it is in the extra pymc")
    from pymc.step_methods import STEP_METHODS

    from loopax.pymc import sample
    from loopax.pymc.arguments import SampleOptions

    named = SampleOptions.__optional_keys__ | {*signature(sample).parameters}
    assert {*signature(pm.sample).parameters} - {"kwargs"} <= named
    assert {step.name for step in STEP_METHODS} <= named
