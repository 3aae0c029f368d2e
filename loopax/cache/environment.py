"""The inputs of a cached result besides its program: the rows of the table in README.md."""

from __future__ import annotations

import hashlib
import os
import sys
import sysconfig
import time
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from pytensor.configdefaults import config

from loopax.base.upstream.pytensor import names_of_flags
from loopax.cache import folder

# Packages that may affect any result. The bytes of their files count, since editing an installed file
# does not change the version.
PACKAGES = ("loopax", "pytensor", "numba", "llvmlite", "numpy", "scipy", "jax", "jaxlib")
# A package that affects results through its ops or rewrites. Code of any other package has no key:
# its calls into unknown packages would count as well.
_ALSO_KNOWN = ("pymc",)

_SOURCES = (".py", ".c", ".h")
_BINARIES = (".so", ".dylib", ".pyd", ".dll")
_NO_CODE = ("__pycache__", "tests")
_BEGAN = time.time_ns()

# PyTensor's flags for paths and printing; a new flag counts. Reading the BLAS flags runs a C
# compiler.
_IRRELEVANT_FLAGS = (
    "blas__",
    "compiledir",
    "verbos",
    "profil",
    "print_global_stats",
    "traceback__",
    "generated_src_dir",
)
# Numba's flags for the number of threads (no code is parallel) and for other targets.
_IRRELEVANT_TO_LLVM = ("CACHE", "THREAD", "CUDA", "GDB", "COLOR", "HTML", "CHROME_TRACE")
_OF_JAX = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_threefry_partitionable",
)


class NotKnown(Exception):
    """Raised if it cannot be known that something is equal in two processes."""


def environment() -> list[str]:
    """The parts of the key of every result. Raises `NotKnown` if a package has changed meanwhile."""
    return [*interpreter(), *map(contents, PACKAGES), *flags_of_pytensor(), *flags_of_jax()]


def native_environment() -> list[str]:
    """The additional key parts for native code."""
    return [*flags_of_numba(), *processor()]


def interpreter() -> list[str]:
    return [sys.implementation.name, sys.version, sys.platform, f"-O{sys.flags.optimize}"]


def flags_of_pytensor() -> list[str]:
    """PyTensor's flags that affect results; its own key lacks some, for example ``numba__fastmath``."""
    names = (name for name in names_of_flags() if not _has(name, _IRRELEVANT_FLAGS))
    return [f"{name}={getattr(config, name)}" for name in names]


def flags_of_jax() -> list[str]:
    """JAX's flags that affect tracing."""
    import jax  # here, so that the passes can be read and tested without it

    return [f"{name}={getattr(jax.config, name, None)}" for name in _OF_JAX]


def flags_of_numba() -> list[str]:
    """The flags of Numba and LLVM, from the environment or ``numba.config``."""
    from loopax.base.upstream.numba import (
        numba_config as options,  # it takes half a second to import, and JAX needs none
    )

    names = [x for x in dir(options) if x.isupper() and not _has(x, _IRRELEVANT_TO_LLVM)]
    return [f"{name}={getattr(options, name)}" for name in names]


def processor() -> list[str]:
    """The name and features of the processor, as Numba passes them to LLVM."""
    from loopax.base.upstream.numba import cpu_target, llvm_version_info

    return [str(llvm_version_info), *map(str, cpu_target.target_context.codegen().magic_tuple())]


@cache
def contents(package: str) -> str:
    """A digest of the files of a package: sources by their bytes, libraries by size and time.

    Reading all sources takes 0.1 s, listing their sizes and times 0.02. So the digest is kept under
    these, and a package is read again only if one differs.

    Raises `NotKnown` if a file has changed since this process began, which may have loaded the
    older version.
    """
    root = _root(package)
    if root is None:
        return f"{package} is not installed"
    try:
        files = sorted(_files(root))
        if any(status.st_mtime_ns > _BEGAN for _, status in files):
            raise NotKnown
        table = [(p, s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino) for p, s in files]
        key = hashlib.sha256(repr(table).encode()).hexdigest()[:40]
        digest = folder.read(key)
        if digest is None:
            digest = _digest(root, files).encode()
            folder.write(key, digest)
    except OSError as error:  # it is being installed
        raise NotKnown from error
    return digest.decode()


def _digest(root: str, files: list[tuple[str, os.stat_result]]) -> str:
    digest = hashlib.sha256()
    for path, status in files:
        is_source = path.endswith(_SOURCES)
        content = Path(path).read_bytes() if is_source else str(status.st_mtime_ns).encode()
        name = os.path.relpath(path, root)
        digest.update(f"\0{name} {status.st_size} {len(content)}\0".encode() + content)
    return digest.hexdigest()


@cache
def origin(name: str) -> str:
    """The key of the code in a loaded module: the digest of its package.

    Raises `NotKnown` if the code may change at any time: the module is a user's, or lies outside of
    its package's folder.
    """
    module = sys.modules.get(name)
    package = name.partition(".")[0]
    if module is not None and (package in PACKAGES or package in _ALSO_KNOWN):
        root = _root(package)
        if root is not None and _lies_in(module, root):
            return contents(package)
    elif module is not None and package in sys.stdlib_module_names and _is_of_stdlib(module):
        return "the standard library"  # with `interpreter`
    raise NotKnown


def _root(package: str) -> str | None:
    """The folder of a package; None where it is not installed."""
    module = sys.modules.get(package)
    paths = getattr(module, "__path__", None)
    if module is None and (spec := find_spec(package)) is not None:
        paths = spec.submodule_search_locations
    return os.path.realpath(next(iter(paths))) if paths else None


def _files(root: str) -> Iterator[tuple[str, os.stat_result]]:
    """The code files of a package, each with its status."""
    with os.scandir(root) as entries:
        for entry in entries:
            if entry.is_dir():
                if entry.name not in _NO_CODE:
                    yield from _files(entry.path)
            elif entry.name.endswith(_SOURCES + _BINARIES) or ".so." in entry.name:
                yield entry.path, entry.stat()


def _lies_in(module: ModuleType, root: str) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and Path(os.path.realpath(file)).is_relative_to(root)


def _is_of_stdlib(module: ModuleType) -> bool:
    """Whether a module is the standard library's, not a user's ``test.py``."""
    if getattr(module, "__file__", None) is None:
        return getattr(module.__spec__, "origin", None) in ("built-in", "frozen")
    paths = sysconfig.get_paths()
    installed = map(os.path.realpath, (paths["purelib"], paths["platlib"]))
    library = map(os.path.realpath, (paths["stdlib"], paths["platstdlib"]))
    return any(_lies_in(module, x) for x in library) and not any(
        _lies_in(module, x) for x in installed
    )


def _has(name: str, substrings: tuple[str, ...]) -> bool:
    return any(substring in name for substring in substrings)
