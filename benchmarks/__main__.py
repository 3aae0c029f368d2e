"""`python -m benchmarks`: measure, print one table."""

import argparse
import importlib.util
import json
import os
import sys
from pathlib import Path

import jax

from benchmarks.calls import COUNTS, LIMIT, call_overhead
from benchmarks.checkpoint import ROUTES, checkpoints
from benchmarks.comparisons import COMPARISONS, CONTROL, compare
from benchmarks.devices import devices
from benchmarks.jax_functions import FUNCTIONS
from benchmarks.kernels import kernels
from benchmarks.models_beside_pytensor import MISSING, models, pymc_is_there
from benchmarks.models_report import MODEL, draw, models_table
from benchmarks.native import PROGRAMS as NATIVE_PROGRAMS
from benchmarks.native import natives
from benchmarks.native_calls import KINDS, LIMITS, native_call
from benchmarks.native_cold import colds, growth
from benchmarks.native_functions import jax_functions, native_functions
from benchmarks.one_core import (
    OPTION,
    UNAVAILABLE,
    figures_of,
    is_available,
    run_on_one_core,
    with_one_core,
)
from benchmarks.parallel import parallels
from benchmarks.passes import passes
from benchmarks.programs import PROGRAMS
from benchmarks.report import ENOUGH, NATIVE_CALL, OVERHEAD, Figure, as_json, environment, table
from benchmarks.sizes import sizes
from benchmarks.stopping import stoppings

NATIVE = (
    "native",
    "native-cold",
    "kernels",
    "native-functions",
)  # what takes names of native programs
CHOICES = (
    *PROGRAMS,
    "calls",
    "checkpoint",
    "devices",
    "jax-functions",
    "models",
    *NATIVE,
    "native-calls",
    "parallel",
    "passes",
    "sizes",
    "stopping",
)


def main(argv=None):
    """Run the benchmarks that are asked for; the exit status is 0 also where a limit is not kept."""
    os.environ["LOOPAX_CACHE_DIR"] = ""  # it would hide what compiling costs
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="loopax beside hand-written JAX and Numba and PyTensor's own modes, in one process.",
    )
    parser.add_argument(
        "which",
        nargs="*",
        metavar="WHICH",
        help=f"of {', '.join(CHOICES)} (default: all). After native, programs of it: "
        f"{', '.join(NATIVE_PROGRAMS)}",
    )
    parser.add_argument(
        "--pairs",
        type=int,
        default=15,
        metavar="N",
        help=f"timed pairs for each figure; {ENOUGH} or more to count (default: %(default)s)",
    )
    parser.add_argument(
        "--control", action="store_true", help="hand-written JAX beside itself, for the noise"
    )
    parser.add_argument(
        "--pytensor",
        action="store_true",
        help="PyTensor's own Numba mode too, in native and native-cold (minutes)",
    )
    parser.add_argument(
        OPTION,
        action="store_true",
        help="measure once more on one core: a column in tables beside XLA, a second table of models",
    )
    parser.add_argument("--json", type=Path, metavar="PATH", help="write all timings there")
    parser.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        help="of the models or the JAX functions, this one; may be repeated (see benchmarks/models and "
        "benchmarks/jax_functions)",
    )
    parser.add_argument(
        "--picture",
        type=Path,
        default=Path("out/models.png"),
        metavar="PATH",
        help="where the picture of the models goes (default: %(default)s)",
    )
    argv = sys.argv[1:] if argv is None else list(argv)
    arguments = parser.parse_intermixed_args(argv)
    if arguments.one_core and not is_available():
        parser.error(UNAVAILABLE)
    if arguments.only and not {"models", "jax-functions"} & {*(arguments.which or ["models"])}:
        parser.error("--only goes with models and jax-functions")
    arguments.which = arguments.which or ["models"] * bool(arguments.only)
    if "jax-functions" in arguments.which and (unknown := {*(arguments.only or ())} - {*FUNCTIONS}):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join(FUNCTIONS)}")
    which, programs = divided(arguments.which or CHOICES)
    for names, choices in ((which, CHOICES), (programs, NATIVE_PROGRAMS)):
        unknown = set(names) - set(choices)
        if unknown:
            parser.error(f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join(choices)}")
    if arguments.pairs < 1:
        parser.error("--pairs must be at least 1")
    if "models" in which:
        which = with_models_or_said(which, arguments, parser)

    jax.config.update("jax_enable_x64", True)
    # A compilation cache on disk, where the user has one, would hide what compiling costs.
    jax.config.update("jax_enable_compilation_cache", False)
    about = environment() | {"pairs": arguments.pairs}
    figures = []
    for figure in measure(which, programs, arguments):
        figures.append(figure)
        say("    {:.3g} ({:.3g} to {:.3g})".format(*figure.estimate))
    run, on_one_core = as_json(figures, about), []
    if arguments.one_core:
        say("once more, on one core")
        run["one core"] = run_on_one_core([word for word in argv if word != OPTION])
        figures, on_one_core = with_one_core(figures, run["one core"]), figures_of(run["one core"])
    print(table(figures, about))
    for title, each in (("", figures), ("\non one core:", on_one_core)):
        if any(figure.measured in MODEL for figure in each):
            print(f"{title}{models_table(each)}")
    if any(figure.measured in MODEL for figure in figures):
        pictured(figures, arguments.picture)
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(run, indent=1) + "\n")
    return 0


def with_models_or_said(which, arguments, parser):
    """What is measured: the models too where PyMC is there; without it they cannot be asked for by name."""
    if pymc_is_there():
        from benchmarks.models import MODELS

        unknown = set(arguments.only or ()) - set(MODELS)
        if unknown:
            parser.error(
                f"unknown models: {', '.join(sorted(unknown))}; choose from {', '.join(MODELS)}"
            )
        return which
    if arguments.which:
        parser.error(MISSING)
    say(f"models left out: {MISSING}")
    return [name for name in which if name != "models"]


def pictured(figures, path):
    """The picture of the models, where matplotlib is there."""
    if importlib.util.find_spec("matplotlib") is None:
        say("no picture: matplotlib is missing, pip install 'loopax[bench]'")
        return
    draw([figure for figure in figures if figure.measured in MODEL], path)
    say(f"picture: {path}")


def divided(which):
    """What is measured, and of the native programs which: those named after what takes names."""
    if which[0] in NATIVE and not set(which[1:]) <= set(CHOICES) - set(NATIVE_PROGRAMS):
        return which[:1], which[1:]
    return which, []


def measure(which, programs, arguments):
    """The figures, one after the other."""
    pairs, control = arguments.pairs, arguments.control
    for name in (name for name in PROGRAMS if name in which):
        for comparison in (*COMPARISONS, *([CONTROL] * control)):
            say(f"{name}, {comparison.name}")
            call, first = compare(PROGRAMS[name], comparison, pairs)
            title = PROGRAMS[name].title, comparison.name
            yield Figure(*title, "one call", comparison.limit_call, call)
            yield Figure(*title, "first result", comparison.limit_first, first)
    for count in COUNTS if "calls" in which else ():
        name = f"{count} scalar argument{'s' * (count > 1)}"
        say(f"direct call, {name}")
        yield Figure(name, "jax.jit", OVERHEAD, LIMIT, call_overhead(count, pairs))
    for route in ROUTES if "checkpoint" in which else ():
        say(f"checkpoint, {route}")
        yield checkpoints(route, pairs)
    if "devices" in which:
        yield from devices(pairs, say)
    if "jax-functions" in which:
        yield from jax_functions(pairs, arguments.only, say)
    if "models" in which:
        yield from models(pairs, arguments.only, say)
    if "native" in which:
        yield from natives(pairs, programs, say, arguments.pytensor)
    if "kernels" in which:
        yield from kernels(pairs, programs, say)
    if "native-functions" in which:
        yield from native_functions(pairs, programs, say)
    for kind in KINDS if "native-calls" in which else ():
        for count, limit in LIMITS.items():
            name = f"{count} {kind}{'s' * (count > 1)}"
            say(f"native call, {name}")
            yield Figure(name, "njit", NATIVE_CALL, limit, native_call(kind, count, pairs))
    if "native-cold" in which:
        yield from colds(pairs, programs, say, arguments.pytensor)
        if not programs:
            yield from growth(pairs, say)
    if "parallel" in which:
        yield from parallels(pairs, say)
    if "passes" in which:
        say("passes")
        yield from passes(pairs)
    if "sizes" in which:
        yield from sizes(pairs, say)
    if "stopping" in which:
        say("stopping")
        yield from stoppings(pairs)


def say(text):
    print(f"... {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
