"""``python -m tests.frontend.from_jaxpr.random_functions``: random functions of JAX, against XLA.

--seed 100 --n 1000               the first seed, and the number of functions
--minutes 30                      for so long at most
--only grad --form native         this transformation, this form
--all                             each transformation of each function; otherwise two of them
--show 7                          the jaxpr of one function
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Sequence

import jax
import pytest

from loopax.frontend.from_jaxpr.reading import NotImportable


def main(argv: Sequence[str] | None = None) -> int:
    from tests.frontend.from_jaxpr.random_functions import comparing
    from tests.frontend.from_jaxpr.random_functions.writing import random_function

    parser = argparse.ArgumentParser(description="Random functions of JAX, against XLA.")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--n", type=int, default=10**9, help="how many functions at most")
    parser.add_argument("--minutes", type=float, default=10.0, help="for how long at most")
    parser.add_argument("--only", action="append", choices=list(comparing.TRANSFORMATIONS))
    parser.add_argument("--form", action="append", choices=list(comparing.FORMS))
    parser.add_argument("--all", action="store_true", help="each transformation")
    parser.add_argument("--show", type=int, metavar="SEED", help="print one function")
    arguments = parser.parse_args(sys.argv[1:] if argv is None else list(argv))
    if arguments.show is not None:
        one = random_function(arguments.show)
        values = comparing.arguments_of(one, "float64")
        print(*values, jax.make_jaxpr(one.function)(*values), sep="\n")
        return 0
    counts: Counter[str] = Counter()
    end = time.monotonic() + 60 * arguments.minutes
    for seed in range(arguments.seed, arguments.seed + arguments.n):
        if time.monotonic() > end:
            break
        one = random_function(seed)
        names = arguments.only or comparing.transformations_of(seed, arguments.all)
        for name in names:
            dtype = comparing.dtype_of(seed)
            try:
                comparison = comparing.Comparison(one, name, dtype)
            except comparing.NotDifferentiable:
                counts["has no derivative"] += 1
                continue
            except Exception:
                counts["refused by JAX itself"] += 1
                print(f"seed {seed}, {name}, {dtype}: refused by JAX itself")
                traceback.print_exc(limit=-4)
                continue
            counts["undecided"] += comparison.share_decided < 0.5
            for form in arguments.form or ["python"]:
                try:
                    what = comparison.difference(form)
                except (NotImportable, pytest.skip.Exception) as error:
                    counts[f"not compared: {error}"] += 1
                    continue
                except Exception as error:
                    what = f"{type(error).__name__}: {error}"
                    traceback.print_exc(limit=-4)
                counts["same" if what is None else "WRONG"] += 1
                if what is not None:
                    print(f"seed {seed}, {name}, {form}, {dtype}: {what[:900]}", flush=True)
        if seed % 50 == 49:
            jax.clear_caches()
            gc.collect()
            print(
                f"{seed + 1 - arguments.seed} functions:", dict(counts.most_common(12)), flush=True
            )
    print(dict(counts))
    return bool(counts["WRONG"])


if __name__ == "__main__":
    os.environ["LOOPAX_CACHE_DIR"] = ""
    warnings.simplefilter("ignore")
    jax.config.update("jax_disable_most_optimizations", True)
    import loopax  # noqa: F401  (JAX's precision)

    sys.exit(main())
