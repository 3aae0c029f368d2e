"""Check of the installed versions of the packages that loopax needs, before one is imported.

The bounds come from pyproject.toml, through the metadata of the installed loopax. This module imports only
the standard library, so that its message appears even if an import of JAX or Numba fails.
"""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

_OTHERS = ("pymc", "nutpie", "numpyro", "blackjax", "equinox", "diffrax")
_REQUIREMENT = re.compile(r"\s*([\w.-]+)\s*([^;]*?)\s*(?:;(.*))?$")
_BOUND = re.compile(r"\s*(>=|<=|==|!=|<|>)\s*([\w.]+)\s*")

Requirement = tuple[str, str]  # a package, and the bounds of its version

written = False  # whether versions were printed before anything was imported


def requirements() -> list[Requirement]:
    """The unconditional requirements of loopax, in the order of pyproject.toml; none if not installed."""
    try:
        lines = requires("loopax") or []
    except PackageNotFoundError:  # a folder on PYTHONPATH
        return []
    return parsed(lines)


def parsed(lines: Iterable[str]) -> list[Requirement]:
    """Parse requirements of pyproject.toml, without those that depend on an extra or on Python."""
    matches = [m for m in map(_REQUIREMENT.match, lines) if m is not None and m[3] is None]
    return [(m[1], m[2].replace(" ", "")) for m in matches]


def installed(name: str) -> str | None:
    """The version of a package, None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def advice(
    needed: Iterable[Requirement], version_of: Callable[[str], str | None] = installed
) -> str:
    """One sentence on packages that are too old, too new or missing; empty if there are none."""
    wrong = [(name, bounds, version_of(name)) for name, bounds in needed]
    wrong = [(n, b, v) for n, b, v in wrong if v is None or not is_within(v, b)]
    if not wrong:
        return ""
    wants = " and ".join(f"{name}{bounds}" for name, bounds, _ in wrong)
    has = " and ".join(f"{n} {v}" if v is not None else f"no {n}" for n, _, v in wrong)
    command = " ".join(f"'{name}{bounds}'" for name, bounds, _ in wrong)
    return f"loopax needs {wants}, and here is {has}: python -m pip install {command}"


def is_within(release: str, bounds: str) -> bool:
    """Whether the numbers of a version are within bounds such as ``>=3.0,<4``."""
    for operator, limit in _BOUND.findall(bounds):
        a, b = _numbers(release), _numbers(limit)
        length = max(len(a), len(b))
        a, b = (x + (0,) * (length - len(x)) for x in (a, b))
        holds = {">=": a >= b, "<=": a <= b, "==": a == b, "!=": a != b, "<": a < b, ">": a > b}
        if not holds[operator]:
            return False
    return True


def _numbers(text: str) -> tuple[int, ...]:
    match = re.match(r"\d+(\.\d+)*", text)
    return tuple(map(int, match[0].split("."))) if match else ()


def lines() -> Iterator[tuple[str, str]]:
    """The names and versions of all packages that a bug report needs."""
    yield "python", f"{platform.python_version()}, {platform.platform()}"
    names = [name for name, _ in requirements()]
    yield "loopax", installed("loopax") or "not installed"
    for name in names:
        yield name, installed(name) or "not installed, and needed"
    for name in _OTHERS:
        yield name, installed(name) or "not installed"


def write_versions(write: Callable[[str], Any]) -> None:
    """Write `lines` under a title."""
    write("Versions")
    for name, release in lines():
        write(f"  {name:<20} {release}")


def check_before_imports(
    argv: list[str] | None = None, write: Callable[[str], Any] | None = None
) -> None:
    """Raise an ImportError with one sentence if a version is wrong.

    In ``python -m loopax doctor`` versions are printed first, even if later imports fail, and the sentence
    is printed instead of raised.

    Raises
    ------
    ImportError, SystemExit
        A package is too old, too new or missing.
    """
    global written
    sentence = advice(requirements())
    if is_doctor(sys.argv if argv is None else argv):
        write = _flushed if write is None else write
        write_versions(write)
        written = True
        if sentence:
            write(sentence)
            raise SystemExit(1)
    if sentence:
        raise ImportError(sentence)


def _flushed(line: str) -> None:
    print(line, flush=True)


def is_doctor(argv: list[str]) -> bool:
    """Whether this process is ``python -m loopax doctor``.

    While Python searches for the package named after ``-m``, ``sys.argv[0]`` is ``-m``.
    """
    if argv[1:2] != ["doctor"]:
        return False
    original = sys.orig_argv if argv is sys.argv else ["python", "-m", "loopax"]
    by_module = argv[0] == "-m" and "loopax" in original
    return by_module or Path(argv[0]).stem == "loopax"
