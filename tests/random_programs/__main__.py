"""``python -m tests.random_programs``: whole programs, or passes over programs of the IR.

--minutes 30                      whole programs for so long
--n 100 --seed 7                  so many, from that seed on
--show 7                          the text of one
--only jax --only numba           these routes only; --all-routes: each for every program. Otherwise
                                  most are run as Python, and a few compiled: `shares.SHARES`
MODULE:PASS ...                   passes over programs of the IR; see `tests.random_programs.in_ir`
"""

import argparse
import itertools
import signal
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else list(argv)
    if any(":" in a for a in argv) or "--passes" in argv:
        from tests.random_programs import in_ir

        return in_ir.main([a for a in argv if a != "--passes"])
    parser = argparse.ArgumentParser(
        prog="python -m tests.random_programs",
        description="Random programs through every route. Names of passes, MODULE:PASS (or --passes, for "
        "all), run those over programs of the IR instead.",
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="for how long at most")
    parser.add_argument("--n", type=int, default=10**9, help="how many programs at most")
    parser.add_argument("--seed", type=int, default=0, help="of the first one")
    parser.add_argument("--all-routes", action="store_true", help="each of them")
    parser.add_argument("--only", action="append", default=[], metavar="ROUTE")
    parser.add_argument("--kinds", default="", help="a regular expression: of which statements")
    parser.add_argument("--no-shrinking", action="store_true", help="count, and print nothing else")
    parser.add_argument("--show", type=int, metavar="SEED", help="print one program")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    from tests.random_programs import running

    if arguments.worker:
        running.work(
            *running.worker_streams(), arguments.all_routes, arguments.only, arguments.kinds
        )
        return 0
    if arguments.show is not None:
        from tests.random_programs.description import source
        from tests.random_programs.writing import program

        print(source(program(arguments.show)))
        return 0
    # In the background a shell lets a process ignore interrupts: then `kill` ends it, with its table.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return running.run(
        itertools.count(arguments.seed),
        minutes=arguments.minutes,
        most=arguments.n,
        every=arguments.all_routes,
        only=arguments.only,
        kinds=arguments.kinds,
        shrinking=not arguments.no_shrinking,
    )


if __name__ == "__main__":
    sys.exit(main())
