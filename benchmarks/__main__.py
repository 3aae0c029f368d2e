"""`python -m benchmarks`: measure, print one table."""

import argparse
import json
import sys
from pathlib import Path

import jax

from benchmarks import calls, comparisons, report
from benchmarks.programs import PROGRAMS

NAMES = dict(zip(("garch", "ar2", "kalman"), PROGRAMS, strict=True))
CHOICES = (*NAMES, "calls")


def main(argv=None):
    """Run the benchmarks that are asked for; the exit status is 0 also where a limit is not kept."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="loopax beside hand-written JAX, in one process."
    )
    parser.add_argument(
        "which", nargs="*", metavar="which", help=f"of {', '.join(CHOICES)} (default: all)"
    )
    parser.add_argument(
        "--pairs",
        type=int,
        default=15,
        metavar="N",
        help=f"timed pairs for each figure; {report.ENOUGH} or more to count (default: %(default)s)",
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
    about = report.environment() | {"pairs": arguments.pairs}
    figures = list(measure(arguments.which or CHOICES, arguments.pairs, arguments.control))
    print(report.table(figures, about))
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(report.as_json(figures, about), indent=1) + "\n")
    return 0


def measure(which, pairs, control):
    """The figures, one after the other."""
    for program in [NAMES[name] for name in NAMES if name in which]:
        for comparison in (*comparisons.COMPARISONS, *([comparisons.CONTROL] * control)):
            say(f"{program.name}: {comparison.name}")
            call, first = comparisons.compare(program, comparison, pairs)
            names = program.name, comparison.name
            yield report.Figure(*names, "call", comparison.limit, call)
            yield report.Figure(*names, "first result", comparisons.LIMIT_FIRST, first)
    if "calls" in which:
        for count in calls.COUNTS:
            say(f"direct call, {count} arguments")
            name = f"{count} scalar{'s' * (count > 1)}"
            yield report.Figure(
                name, "direct call", "call overhead", calls.LIMIT, calls.call_overhead(count)
            )


def say(text):
    print(f"... {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
