"""PyTensor in: whatever `jaxify` accepts becomes a `Program` over the IR."""

from loopax.frontend.importer import import_graph
from loopax.frontend.read import read_function, read_graph, read_variables
from loopax.frontend.tracing import Signature, signature, trace
from loopax.ir.program import Input, Program, Shared

__all__ = [
    "Input",
    "Program",
    "Shared",
    "Signature",
    "import_graph",
    "read_function",
    "read_graph",
    "read_variables",
    "signature",
    "trace",
]
