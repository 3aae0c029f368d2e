"""Writes docs/ops.md, for the PyTensor that is installed."""

import sys
import warnings

import jax
import pytensor

from tests.every_op import page

if __name__ == "__main__":
    jax.config.update("jax_disable_most_optimizations", True)
    pytensor.config.cxx, pytensor.config.mode = "", "FAST_COMPILE"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        page.write(sys.argv[1:])
