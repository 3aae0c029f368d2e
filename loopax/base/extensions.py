"""Extensions: optional features, which the core requests by name and never imports.

An extension is a package in ``loopax/extensions`` whose ``EXTENSION`` is an `Extension`, a record of
its parts. After a folder is deleted, an option that needs it raises an error, and all else works.
Extensions stand in no other place, because the key of the cache on disk covers the files of this
package: installations with and without an extension have different results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Any

_PACKAGE = "loopax.extensions"


@dataclass(frozen=True)
class Extension:
    """The parts and rules of an extension."""

    name: str  # the name of its folder
    # ``"module:attribute"`` by the name that the core requests; imported at the first request.
    parts: Mapping[str, str] = field(default_factory=dict)
    # The modules that register conversions of ops, by the name of the backend with which they are
    # imported.
    rules: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def part(self, name: str) -> Any:
        module, _, attribute = self.parts[name].partition(":")
        return getattr(import_module(module), attribute)


@cache
def installed_extensions() -> Mapping[str, Extension]:
    """The extensions of this installation, by name."""
    if find_spec(_PACKAGE) is None:
        return {}
    folders = import_module(_PACKAGE).__path__
    names = sorted(module.name for module in iter_modules(folders) if module.ispkg)
    return {name: import_module(f"{_PACKAGE}.{name}").EXTENSION for name in names}


def provided(extension: str, part: str) -> Any:
    """A part of an extension; None where this installation lacks the extension."""
    record = installed_extensions().get(extension)
    return None if record is None else record.part(part)


def required(extension: str, request: str, otherwise: str) -> Extension:
    """The extension that ``request``, an option as the user writes it, needs.

    Raises `ImportError` if this installation lacks the extension. The message ends with
    ``otherwise``, the alternative without it.
    """
    if extension not in installed_extensions():
        raise ImportError(missing(extension, request, otherwise))
    return installed_extensions()[extension]


def missing(extension: str, request: str, otherwise: str) -> str:
    """The message that ``request`` needs an extension that this installation lacks."""
    return (
        f"{request} needs the extension {extension!r}, and this installation of loopax has no folder "
        f"loopax/extensions/{extension}; it has the extensions {[*installed_extensions()]}. Install all of "
        f"loopax. Without the extension: {otherwise}."
    )


def import_rules(backend: str) -> None:
    """Import the modules in which extensions register conversions with ``backend``."""
    for record in installed_extensions().values():
        for module in record.rules.get(backend, ()):
            import_module(module)
