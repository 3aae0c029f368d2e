"""Every program, in the order of the themes; those that must run now, and those for later."""

from . import (
    composition,
    conditionals,
    contractions,
    dtypes,
    early_stop,
    front_end,
    linalg,
    masks,
    models,
    opaque_ops,
    random_state,
    scan_bodies,
    scan_gradients,
    scans,
    shapes,
    shared_values,
    sparse_and_lists,
    special,
    subtensors,
    twins,
    vectorized,
    zero_steps,
)
from .record import Program

__all__ = ["NOW", "PROGRAMS", "due", "not_yet", "raising"]

THEMES = (
    shapes,
    subtensors,
    scans,
    scan_bodies,
    scan_gradients,
    zero_steps,
    composition,
    conditionals,
    masks,
    dtypes,
    linalg,
    contractions,
    special,
    models,
    opaque_ops,
    vectorized,
    twins,
    shared_values,
    # Later issues' own themes: 3, 4, 5 (a few of their programs are due now).
    front_end,
    random_state,
    sparse_and_lists,
    early_stop,
)

PROGRAMS: tuple[Program, ...] = tuple(
    value for theme in THEMES for value in vars(theme).values() if isinstance(value, Program)
)

# Raise when an issue is closed: its programs are then collected by test_programs.py.
NOW = 5


def due(issue: int = NOW) -> list[Program]:
    """What must run once `issue` is closed."""
    return [p for p in PROGRAMS if p.issue <= issue and not p.error]


def raising(issue: int = NOW) -> list[Program]:
    """What can never run, and must say why."""
    return [p for p in PROGRAMS if p.issue <= issue and p.error]


def not_yet(issue: int = NOW) -> list[Program]:
    """What belongs to a later issue."""
    return [p for p in PROGRAMS if p.issue > issue]
