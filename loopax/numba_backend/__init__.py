"""IR -> Numba: ops of the IR in PyTensor's own Numba mode, and programs as one native function.

Importing this package does not import Numba, which takes half a second.
"""

from loopax.numba_backend.callable.backend import NUMBA
from loopax.numba_backend.callable.context import NumbaContext
from loopax.numba_backend.callable.function import NumbaFunction
from loopax.numba_backend.pytensor_mode.registration import register_with_pytensor

__all__ = ["NUMBA", "NumbaContext", "NumbaFunction", "register_with_pytensor"]
