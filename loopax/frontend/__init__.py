"""The frontend: reads inputs of `jaxify` as a `Program` over the IR, and builds loops as its nodes."""

from loopax.frontend.programs.broadcasting import with_declared_lengths
from loopax.frontend.programs.donation import (
    Donate,
    Donated,
    arguments_of,
    donated_arguments,
    donating,
    donating_leaves,
)
from loopax.frontend.programs.equal_draws import warn_of_equal_draws
from loopax.frontend.programs.plain_tensors import with_plain_tensors
from loopax.frontend.programs.pytree_inputs import PytreeInputs, has_pytrees
from loopax.frontend.programs.read import Replacements, read_linked, read_variables
from loopax.frontend.programs.read_program import read_program, warn_of_mistakes
from loopax.frontend.programs.static_arguments import static_names, with_open_arguments, with_static
from loopax.frontend.programs.tracing import Signature, signature, trace
from loopax.ir.program import Input, Program, Shared

__all__ = [
    "Donate",
    "Donated",
    "Input",
    "Program",
    "PytreeInputs",
    "Replacements",
    "Shared",
    "Signature",
    "arguments_of",
    "donated_arguments",
    "donating",
    "donating_leaves",
    "has_pytrees",
    "with_plain_tensors",
    "read_linked",
    "read_program",
    "read_variables",
    "signature",
    "static_names",
    "trace",
    "warn_of_equal_draws",
    "warn_of_mistakes",
    "with_declared_lengths",
    "with_open_arguments",
    "with_static",
]
