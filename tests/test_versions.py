"""What is said where a package is too old, too new or absent, and where that is found out."""

import re
import subprocess
import sys

import pytest

from loopax import doctor, versions
from tests.lowest_versions import constraints, dependencies

NEEDED = versions.parsed(dependencies())
BOUNDS = dict(NEEDED)


def with_versions(**changed):
    """A process's packages: at their floors, but for those that are named."""
    floors = dict(line.split("==") for line in constraints())
    return {**floors, **changed}.get


def test_every_dependency_has_a_floor_and_numba_a_ceiling():
    assert [name for name, _ in NEEDED] == [line.split("==")[0] for line in constraints()]
    assert "<" in BOUNDS["numba"] and "<4" in BOUNDS["pytensor"]
    assert {"scipy", "llvmlite"} <= {*BOUNDS}  # loopax imports them itself


def test_the_installed_versions_and_the_floors_are_right():
    assert versions.advice(NEEDED) == ""
    assert versions.advice(NEEDED, with_versions()) == ""


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"jax": "0.4.38"}, ["jax 0.4.38", f"'jax{BOUNDS['jax']}'"]),
        ({"numba": "0.99.0"}, ["numba 0.99.0", f"'numba{BOUNDS['numba']}'"]),
        ({"numba": "0.59.1"}, ["numba 0.59.1"]),
        ({"pytensor": "4.0.0"}, ["pytensor 4.0.0"]),
        ({"pytensor": "2.38.1"}, ["pytensor 2.38.1"]),
        ({"numpy": "1.26.4", "jaxlib": None}, ["numpy 1.26.4", "no jaxlib", "'jaxlib"]),
    ],
)
def test_one_sentence_on_what_is_wrong(changed, words):
    said = versions.advice(NEEDED, with_versions(**changed))
    assert "\n" not in said and said.startswith("loopax needs ")
    assert "python -m pip install '" in said
    for word in words:
        assert word in said
    for name in set(BOUNDS) - set(changed):
        assert not re.search(rf"\b{name}\b[<>=]", said)


def test_only_numbers_are_compared():
    assert versions.is_within("0.12.0.1", ">=0.12,<0.13")
    assert versions.is_within("0.68.0rc1", ">=0.60,<0.69")
    assert versions.is_within("0.68.0dev0+12.g1f", "<0.69")
    assert not versions.is_within("0.69.0", ">=0.60,<0.69")
    assert versions.is_within("3", "==3.0.0") and not versions.is_within("3.1", "!=3.1.0")


def test_extras_and_markers_are_not_needed_in_any_case():
    lines = ["jax>=0.9", 'pymc>=6; extra == "pymc"', 'x; python_version < "3.12"', "numpy"]
    assert versions.parsed(lines) == [("jax", ">=0.9"), ("numpy", "")]


@pytest.fixture
def too_old(monkeypatch):
    monkeypatch.setattr(versions, "requirements", lambda: [("numpy", ">=99"), ("jax", ">=0.1")])


def test_an_import_says_it(too_old):
    with pytest.raises(
        ImportError, match=r"^loopax needs numpy>=99, and here is numpy [\d.]+: .*'numpy>=99'$"
    ):
        versions.check_before_imports(["program.py"])


@pytest.mark.parametrize("program", ["-m", "/usr/bin/loopax"])
def test_doctor_prints_versions_and_says_it_too(too_old, monkeypatch, program):
    monkeypatch.setattr(versions, "written", False)
    said = []
    with pytest.raises(SystemExit):
        versions.check_before_imports([program, "doctor"], said.append)
    assert said[0] == "Versions" and any(line.split()[0] == "jax" for line in said)
    assert said[-1].startswith("loopax needs numpy>=99")


def test_versions_are_not_printed_twice(monkeypatch):
    monkeypatch.setattr(doctor, "_CHECKS", {})
    for written in (False, True):
        monkeypatch.setattr(versions, "written", written)
        said = []
        doctor.report(said.append)
        assert said.count("Versions") == (not written)


@pytest.mark.slow
def test_doctor_in_a_process_of_its_own():
    """It prints versions though nothing can be imported, and says what is missing."""
    block = (
        "import sys, importlib.metadata as m\n"
        "asked = m.version\n"
        "m.version = lambda name: '0.1' if name == 'jax' else asked(name)\n"
        "m.requires = lambda name: ['jax>=0.9', 'numpy>=2.0']\n"
        "sys.modules.update(dict.fromkeys(['jax', 'numba', 'pytensor', 'numpy']))\n"
        "sys.argv = ['loopax', 'doctor']\n"
        "import loopax\n"
    )
    done = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr == ""
    *said, last = done.stdout.splitlines()
    assert said[0] == "Versions"
    assert last == "loopax needs jax>=0.9, and here is jax 0.1: python -m pip install 'jax>=0.9'"


def test_it_needs_the_standard_library_alone():
    code = (
        "import sys, importlib.util as u\n"
        f"spec = u.spec_from_file_location('versions', {versions.__file__!r})\n"
        "spec.loader.exec_module(u.module_from_spec(spec))\n"
        "print(*{name.split('.')[0] for name in sys.modules})\n"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not {"jax", "jaxlib", "numba", "pytensor", "numpy"} & {*done.stdout.split()}
