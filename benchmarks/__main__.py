"""`python -m benchmarks`: measure, print one table."""

import argparse
import json
import sys
from pathlib import Path

import jax

from benchmarks.calls import COUNTS, LIMIT, call_overhead
from benchmarks.checkpoint import ROUTES, checkpoints
from benchmarks.comparisons import COMPARISONS, CONTROL, compare
from benchmarks.native import natives
from benchmarks.passes import passes
from benchmarks.programs import PROGRAMS
from benchmarks.report import ENOUGH, OVERHEAD, Figure, as_json, environment, table
from benchmarks.stopping import stoppings

CHOICES = (*PROGRAMS, "calls", "checkpoint", "native", "passes", "stopping")


def main(argv=None):
    """Run the benchmarks that are asked for; the exit status is 0 also where a limit is not kept."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="loopax beside hand-written JAX, in one process."
    )
    parser.add_argument(
        "which", nargs="*", metavar="WHICH", help=f"of {', '.join(CHOICES)} (default: all)"
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
    parser.add_argument("--json", type=Path, metavar="PATH", help="write all timings there")
    arguments = parser.parse_args(argv)
    unknown = set(arguments.which) - set(CHOICES)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join(CHOICES)}")
    if arguments.pairs < 1:
        parser.error("--pairs must be at least 1")

    jax.config.update("jax_enable_x64", True)
    # A compilation cache on disk, where the user has one, would hide what compiling costs.
    jax.config.update("jax_enable_compilation_cache", False)
    about = environment() | {"pairs": arguments.pairs}
    figures = list(measure(arguments.which or CHOICES, arguments.pairs, arguments.control))
    print(table(figures, about))
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(as_json(figures, about), indent=1) + "\n")
    return 0


def measure(which, pairs, control):
    """The figures, one after the other."""
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
    if "native" in which:
        say("native")
        yield from natives(pairs)
    if "passes" in which:
        say("passes")
        yield from passes(pairs)
    if "stopping" in which:
        say("stopping")
        yield from stoppings(pairs)


def say(text):
    print(f"... {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
