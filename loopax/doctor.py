"""The command ``python -m loopax doctor``: installed versions, and whether they work. For bug reports."""

from __future__ import annotations

import os
import runpy
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.configdefaults import config

from loopax import versions
from loopax.cache import cache_folder
from loopax.comparing import compare
from loopax.frontend.loops.scan import scan
from loopax.transpile import jaxify

if TYPE_CHECKING:
    from pathlib import Path

_VARIABLES = ("LOOPAX_", "PYTENSOR_FLAGS", "JAX_", "XLA_FLAGS", "NUMBA_", "OMP_NUM_THREADS")


def report(write: Callable[[str], Any] = print) -> bool:
    """Write the installed versions, a line each, and whether small programs give the right results.

    Returns
    -------
    Whether all of them do.
    """
    if not versions.written:
        versions.write_versions(write)
    for title, lines in (("Set-up", _settings()), ("Environment", _environment())):
        write(title)
        for name, value in lines:
            write(f"  {name:<20} {value}")
    write("Checks")
    results = [_checked(name, check, write) for name, check in _CHECKS.items()]
    return all(results)


def _settings() -> Iterator[tuple[str, str]]:
    devices: dict[str, int] = {}
    for device in jax.devices():
        kind = f"{device.platform} ({device.device_kind})"
        devices[kind] = devices.get(kind, 0) + 1
    yield "JAX's devices", ", ".join(f"{n} {kind}" for kind, n in devices.items())
    double = jax.config.jax_enable_x64  # type: ignore[attr-defined]  # JAX does not annotate its options
    yield "JAX's precision", "64 bits" if double else "32 bits"
    yield "PyTensor's floatX", config.floatX
    yield "PyTensor's mode", f"{config.mode}, C++ compiler: {config.cxx or 'none'}"
    yield "threads", f"{os.cpu_count()} processors"
    folder = cache_folder()
    yield "native code kept in", "nothing is kept" if folder is None else _described(folder)


def _described(folder: Path) -> str:
    if not folder.is_dir():
        return f"{folder}, empty"
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    access = "" if os.access(folder, os.W_OK) else ", which cannot be written"
    return f"{folder}{access}: {len(sizes)} files, {sum(sizes) / 2**20:.1f} MB"


def _environment() -> Iterator[tuple[str, str]]:
    names = [name for name in sorted(os.environ) if name.startswith(_VARIABLES)]
    yield from ((name, os.environ[name]) for name in names)
    if not names:
        yield "nothing", "of " + ", ".join(_VARIABLES)


# -- checks ------------------------------------------------------------------------------------------


def _program() -> tuple[list[Any], list[Any]]:
    """A small recurrence and its slope, with all the features of a real program."""
    x = pt.tensor("x", dtype=config.floatX, shape=(None,))
    final, _ = scan(lambda c, x: (pt.tanh(0.5 * c + x), None), pt.zeros((), dtype=config.floatX), x)
    return [x], [final, pytensor.grad(final, x)]


def _agrees(values: Sequence[Any]) -> None:
    x = _X.astype(config.floatX)
    state, slope = 0.0, np.zeros_like(x)
    for k, one in enumerate(x):
        state = np.tanh(0.5 * state + one)
        slope[k] = 1.0
        slope[:k] *= 0.5
        slope[: k + 1] *= 1 - state**2
    tolerance = 1e-10 if config.floatX == "float64" else 1e-4
    np.testing.assert_allclose(values[0], state, rtol=tolerance)
    np.testing.assert_allclose(values[1], slope, rtol=tolerance)


def _jaxified(**options: Any) -> None:
    _agrees(jaxify(*_program(), **options)(_X.astype(config.floatX)))


def _by_mode(mode: str) -> None:
    _agrees(pytensor.function(*_program(), mode=mode)(_X.astype(config.floatX)))


_X = np.array([0.5, -1.0, 2.0, 0.3])
_CHECKS: dict[str, Callable[[], None]] = {
    "JAX's operations": lambda: _jaxified(loops="xla"),
    "native code": lambda: _jaxified(backend="numba"),
    "native code in JAX": lambda: _jaxified(loops="native"),
    "PyTensor's mode": lambda: _by_mode("LOOPAX_NUMBA"),
}


def _checked(name: str, check: Callable[[], None], write: Callable[[str], Any]) -> bool:
    began = time.perf_counter()
    try:
        check()
        outcome, ok = "right", True
    except Exception as error:  # whatever it is, it belongs into the report
        outcome, ok = f"FAILED: {type(error).__name__}: {error}", False
    write(f"  {name:<20} {outcome}, {time.perf_counter() - began:.1f} s")
    return ok


def _compared(program: str, write: Callable[[str], Any]) -> bool:
    """Compare a user's function, named ``file.py:f``, in all its forms; return whether they agree."""
    path, _, name = program.rpartition(":")
    if not path or not name.isidentifier():
        raise SystemExit(f"--program takes file.py:function, got {program!r}.")
    variables = runpy.run_path(path)
    if name not in variables:
        raise SystemExit(
            f"{path} has no {name!r}: it has {', '.join(map(repr, _public(variables)))}."
        )
    write(f"Program {program}")
    comparison = compare(variables[name], *variables.get(f"{name}_args", ()))
    for line in str(comparison).splitlines():
        write(f"  {line}")
    return comparison.ok


def _public(variables: dict[str, Any]) -> list[str]:
    return [name for name, x in variables.items() if callable(x) and not name.startswith("_")]


def main(program: str | None = None) -> int:
    """Run the command; its exit status is 1 if a check fails, or forms of ``program`` differ."""
    ok = report()
    if (program is None or _compared(program, print)) and ok:
        return 0
    print("Please add all of this to a report of the fault.", file=sys.stderr)
    return 1
