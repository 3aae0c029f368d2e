"""Arguments of ``pm.sample`` that have a second name here, or that only one sampler takes."""

from __future__ import annotations

from typing import Any


def one_name(ours: str, value: Any, default: Any, theirs: str, options: dict[str, Any]) -> Any:
    """The value of an argument with two names, of which ``theirs`` leaves ``options``."""
    if theirs not in options:
        return value
    if value is not default:
        raise TypeError(
            f"{ours!r} and {theirs!r} are two names of one argument: give sample(model, "
            f"{theirs}={options[theirs]!r}) alone."
        )
    return options.pop(theirs)


def asks_for_pymc(options: dict[str, Any]) -> bool:
    """Whether an argument is one that PyMC's own sampler alone takes; ``pm.sample`` asks the same."""
    starts = options.get("initvals")
    return (
        any(options.get(name) is not None for name in ("step", "trace", "callback"))
        or options.get("init", "auto") != "auto"
        or not options.get("return_inferencedata", True)
        or not (starts is None or isinstance(starts, dict))
    )
