"""How many of the programs one of PyTensor's own modes runs, value for value.

python -m tests.programs.measure JAX
python -m tests.programs.measure CVM scans      only those with that in their theme or name
"""

import sys
import time
import warnings

import numpy as np
from pytensor.compile.mode import Mode

from . import reference
from .catalogue import PROGRAMS

MODES = {"CVM": Mode(linker="cvm", optimizer="fast_run")}


def verdict(program, mode) -> str:
    """`ok`, or what differs, or the exception."""
    try:
        right = reference.expected(program)
        got = [np.asarray(value) for value in reference.evaluate(program, MODES.get(mode, mode))]
    except Exception as e:  # any failure of PyTensor is a result here
        return f"{type(e).__name__}: {(str(e).splitlines() or [''])[0][:100]}"
    for k, (a, b) in enumerate(zip(got, right, strict=True)):
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            return f"output {k}: {a.dtype}{a.shape} is not {b.dtype}{b.shape}"
        if program.values_match and not np.allclose(a, b, rtol=1e-6, atol=1e-10, equal_nan=True):
            return f"output {k}: other values"
    return "ok"


def main(mode: str, only: str = "") -> None:
    warnings.simplefilter("ignore")
    chosen = [p for p in PROGRAMS if only in str(p)]
    passed = 0
    for program in chosen:
        start = time.perf_counter()
        said = verdict(program, mode)
        passed += said == "ok"
        seconds = time.perf_counter() - start
        print(f"{str(program):60} {program.issue} {seconds:5.1f}s {said}", flush=True)
    print(f"{mode}: {passed} of {len(chosen)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
