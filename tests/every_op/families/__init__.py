"""The examples, one file for each family of ops."""

from collections.abc import Mapping
from types import ModuleType

from tests.every_op.families import (
    compiled,
    draws,
    graphs,
    indexing,
    linalg,
    optimizers,
    scalars,
    sparse,
    tensors,
    typed_lists,
    xtensors,
)

# By the modules of PyTensor whose classes a family has, the longest that fits.
FAMILIES: Mapping[str, ModuleType] = {
    "pytensor.scalar": scalars,
    "pytensor.tensor": tensors,
    "pytensor.tensor.subtensor": indexing,
    "pytensor.tensor.linalg": linalg,
    "pytensor.tensor.random": draws,
    "pytensor.tensor.optimize": optimizers,
    "pytensor.sparse": sparse,
    "pytensor.typed_list": typed_lists,
    "pytensor.xtensor": xtensors,
    "pytensor": graphs,
    # What PyTensor's own rewrites put into a program that is compiled.
    "pytensor.tensor.blas": compiled,
    "pytensor.tensor.blas_c": compiled,
    "pytensor.tensor.rewriting": compiled,
    "pytensor.tensor.random.op": compiled,
    "pytensor.sparse.rewriting": compiled,
    "pytensor.link.jax": compiled,
}
