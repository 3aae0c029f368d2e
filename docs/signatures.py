"""An extension of griffe, which reads the API pages: signatures as a caller sees them.

A default is its value and not the name of a constant, an argument that may be left out has `...`, and
a catch-all for misspelled options is not shown.
"""

import ast
from importlib import import_module
from typing import Any

import griffe

CATCH_ALL = (
    "unknown"  # the parameter that turns a misspelled option into an error
)


class CallerSignatures(griffe.Extension):
    """Rewrite the parameters of functions and methods."""

    def on_function(self, *, func: griffe.Function, **kwargs: Any) -> None:
        """Replace the defaults of one function, and remove its catch-all."""
        for parameter in list(func.parameters):
            if parameter.name == CATCH_ALL:
                del func.parameters[CATCH_ALL]
            elif parameter.default is not None:
                parameter.default = shown(
                    str(parameter.default), func.module.path
                )


def shown(default: str, module: str) -> str:
    """The text of a default, an expression in the namespace of ``module``; `...` without that module."""
    try:
        ast.literal_eval(default)
        return default
    except ValueError:
        names = {
            node.id
            for node in ast.walk(ast.parse(default))
            if isinstance(node, ast.Name)
        }
        try:
            namespace = vars(import_module(module))
        except (
            ImportError
        ):  # `loopax.pymc` on Python 3.11, for which there is no PyMC 6
            return "..."
        if not names <= set(namespace):
            return default
        value = eval(default, dict(namespace))
        return (
            repr(value)
            if isinstance(value, str | int | float | tuple | bool)
            else "..."
        )
