"""`loopax <command>`, or `python -m loopax <command>`: the commands, one line each."""

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m loopax", description="PyTensor, as JAX.")
    parser.add_argument("--version", action="version", version=f"loopax {version('loopax')}")
    commands = parser.add_subparsers(required=True, metavar="command")
    text = "fit a Kalman filter, written in PyTensor, to the flow of the Nile with JAX and SciPy"
    demo = commands.add_parser("demo", help=text, description=text)
    demo.add_argument(
        "--output",
        type=Path,
        default=Path("out/nile.png"),
        metavar="PATH",
        help="where to write the picture (default: %(default)s)",
    )
    demo.set_defaults(run=run_demo)
    text = (
        "versions, precision, the native tool-chain and whether they work: for a report of a fault"
    )
    doctor = commands.add_parser("doctor", help=text, description=text)
    doctor.add_argument(
        "--program",
        metavar="FILE.py:F",
        help="also compare a function in a file in all its forms, for the arguments that the variable "
        "F_args of that file has (a tuple); see loopax.compare",
    )
    doctor.set_defaults(run=run_doctor)
    text = "remove the native code and the lowered programs that are kept on disk"
    clear = commands.add_parser("clear-cache", help=text, description=text)
    clear.set_defaults(run=run_clear_cache)
    arguments = parser.parse_args(argv)
    try:
        return arguments.run(arguments)
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130


def run_demo(arguments: argparse.Namespace) -> int:
    from loopax.demo import DemoError, main

    try:
        main(arguments.output)
    except DemoError as error:
        print(f"python -m loopax demo: {error}", file=sys.stderr)
        return 1
    return 0


def run_doctor(arguments: argparse.Namespace) -> int:
    from loopax.doctor import main

    return main(arguments.program)


def run_clear_cache(arguments: argparse.Namespace) -> int:
    from loopax.cache import clear_cache

    print(f"{clear_cache()} files removed")
    return 0


def run() -> None:
    sys.exit(main())


if __name__ == "__main__":
    run()
