"""`python -m examples.gallery`: run the examples, and keep the pictures, the output and the ratios.

    python -m examples.gallery [--to FOLDER] [--check] [NAME ...]

writes FOLDER/NAME.png and FOLDER/NAME.json for each example, and overview.svg, which shows the times of
all; the default folder is out/gallery. With --check it compares numbers and times nothing: runs are short,
and PyMC and PyTensor, which otherwise compile for minutes, compute values alone in their mode FAST_COMPILE.
The exit status is 1 if an example fails.
"""

import argparse
import io
import json
import os
import platform
import re
import runpy
import sys
import time
import traceback
from contextlib import redirect_stdout
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytensor
from PIL import Image

from examples.gallery import overview
from examples.gallery.page import EXAMPLES, OPTIONAL, needs, script
from loopax.demo import gallery

# Sizes in the scripts are a user's; a check replaces hundreds and thousands by a hundred.
SIZE = re.compile(r'\b(draws|tune|data_sets)("?: ?| ?= ?)\d{3,}\b')


def main(argv=None):
    """Run the examples that are named, or all; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m examples.gallery")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=", ".join(EXAMPLES)
    )
    parser.add_argument(
        "--to", type=Path, default=Path("out/gallery"), metavar="FOLDER"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="compare numbers in short runs, and time nothing",
    )
    arguments = parser.parse_args(argv)
    if arguments.check:
        gallery.timing = False
    if unknown := set(arguments.names) - set(EXAMPLES):
        parser.error(f"no example is called {', '.join(sorted(unknown))}")
    arguments.to.mkdir(parents=True, exist_ok=True)
    failed = [
        name
        for name in arguments.names or EXAMPLES
        if not kept(name, arguments.to)
    ]
    if gallery.timing:
        overview.draw(arguments.to)
    if failed:
        print("failed:", ", ".join(failed))
    return 1 if failed else 0


def kept(name, folder):
    """Run one example and write its picture and record; whether nothing went wrong."""
    for package in needs(name):
        if not find_spec(package):
            print(f"{name:24} left out: {OPTIONAL[package]}", flush=True)
            return True
    began = time.perf_counter(), processor_time()
    try:
        figure, printed, ratios = run(name)
    except Exception:
        traceback.print_exc()
        return False
    save(figure, folder / f"{name}.png")
    record = {"printed": printed, "ratios": ratios, "machine": machine()}
    (folder / f"{name}.json").write_text(
        json.dumps(record, indent=1) + "\n", encoding="utf-8"
    )
    print(f"{name:24} {time.perf_counter() - began[0]:6.1f} s", end="")
    print(
        f"{processor_time() - began[1]:8.1f} s of a processor", flush=True
    )
    return True


def processor_time():
    """The processor time of this process and of the processes that it has started, compilers too."""
    return sum(os.times()[:4])


def run(name):
    """The figure of an example, its output and its ratios."""
    gallery.ratios.clear()
    printed = io.StringIO()
    with redirect_stdout(printed), TemporaryDirectory() as folder:
        # A check calls PyTensor's own functions a few times: Python is ready sooner than a C compiler.
        # PyMC keeps its mode, because it samples with functions that it compiles.
        quick = {} if gallery.timing else {"cxx": ""}
        if not gallery.timing and "pymc" not in needs(name):
            quick["mode"] = "FAST_COMPILE"
        path = script(name)
        if not gallery.timing:
            text = path.read_text(encoding="utf-8")
            path = Path(folder, path.name)
            path.write_text(shortened(text), encoding="utf-8")
        with pytensor.config.change_flags(**quick):
            # As the main program: processes that it starts import it by its path.
            namespace = runpy.run_path(str(path), run_name="__main__")
    return namespace["figure"], printed.getvalue(), dict(gallery.ratios)


def shortened(text):
    """``text`` with fewer draws and data sets."""
    return SIZE.sub(r"\g<1>\g<2>100", text)


def save(figure, path):
    """Write the picture with 64 colours, which takes a third of the space."""
    file = io.BytesIO()
    figure.savefig(file, dpi=110)
    Image.open(file).convert("RGB").quantize(64).save(path, optimize=True)


def machine():
    """What the times were taken on, in one line."""
    packages = [
        p
        for p in ("pytensor", "pymc", "numpyro", "jax", "numba")
        if find_spec(p)
    ]
    versions = ", ".join(f"{p} {version(p)}" for p in packages)
    threads = os.environ.get("OPENBLAS_NUM_THREADS")
    blas = f", {threads} thread for BLAS" if threads else ""
    return f"{processor()}{blas}, Python {platform.python_version()}, {versions}"


def processor():
    """The processor's name where the system tells it, or its kind."""
    try:
        lines = (
            Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        )
    except OSError:
        lines = []
    names = [
        line.partition(":")[2].strip()
        for line in lines
        if line.startswith("model name")
    ]
    return f"{len(names)} x {names[0]}" if names else platform.machine()


if __name__ == "__main__":
    sys.exit(main())
