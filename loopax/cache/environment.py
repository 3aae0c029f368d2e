"""What the results of the same code depend on besides: versions, files, settings."""

from __future__ import annotations

import platform
import sys
import sysconfig
from functools import cache
from importlib.metadata import version
from pathlib import Path

# Whose code is known by the version, or by the files.
PACKAGES = ("loopax", "pytensor", "numba", "llvmlite", "numpy")


@cache
def versions() -> tuple[str, ...]:
    """Of Python and of `PACKAGES`."""
    return (platform.python_version(), *(f"{name} {version(name)}" for name in PACKAGES))


@cache
def stamp(folder: Path) -> str:
    """Of the Python files in a folder, which changes with them: a version may stay while one works."""
    stats = [(str(f.relative_to(folder)), f.stat()) for f in sorted(folder.rglob("*.py"))]
    return repr([(name, s.st_size, s.st_mtime_ns) for name, s in stats])


@cache
def stamp_of_installed(module: str) -> str | None:
    """Of the package of a module, or None where it may change at any time: a user's own file.

    An installed package is replaced as a whole, by which its files get another time.
    """
    package = module.partition(".")[0]
    if package in PACKAGES or package in sys.stdlib_module_names:
        return package
    file = getattr(sys.modules.get(package), "__file__", None)
    if file is None or not any(Path(file).is_relative_to(p) for p in _installed_in()):
        return None
    stats = Path(file).stat()
    return f"{package} {stats.st_size} {stats.st_mtime_ns}"


@cache
def _installed_in() -> set[str]:
    paths = sysconfig.get_paths()
    return {paths["purelib"], paths["platlib"]}
