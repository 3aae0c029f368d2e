"""The core works where the folder `loopax/extensions` has been deleted: its own tests pass there."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
KEPT = (
    "loopax",
    "tests",
    "benchmarks",
    "examples",
    "docs",
    "*.toml",
    "*.md",
    "*.yml",
    "*.py",
    "Makefile",
)
# Imports, loops and their gradients in all three forms, derivatives, what `explain` says, what is missing.
QUICK = (
    "tests/test_smoke.py::test_a_loop_and_its_gradient",
    "tests/test_smoke.py::test_transformations_of_jax",
    "tests/base/test_extensions.py",
    "tests/explanation/test_summary.py",
    "tests/derivatives/test_jacobians.py::test_the_jacobian_is_that_of_jax",
)
WIDE = (
    "tests/test_smoke.py",
    "tests/test_layering.py",
    "tests/derivatives/test_jacobians.py",
    "tests/documents/test_docstrings.py",
    "tests/explanation",
    "tests/frontend/loops",
    "tests/jax_backend/control_flow",
    "tests/lowering/derivatives",
)


@pytest.fixture(scope="module")
def without(tmp_path_factory):
    """A checkout from which the extensions are gone, and their tests."""
    folder = tmp_path_factory.mktemp("checkout")
    gone = shutil.ignore_patterns("extensions", "__pycache__")
    for path in (path for pattern in KEPT for path in ROOT.glob(pattern)):
        if path.is_dir():
            shutil.copytree(path, folder / path.name, ignore=gone)
        else:
            shutil.copy(path, folder)
    assert not (folder / "loopax/extensions").exists()
    return folder


def run(folder, *arguments):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    environment = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    return subprocess.run(
        command,
        cwd=folder,
        env={**environment, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_the_quick_tests_of_the_core_pass(without):
    actual = run(without, "-m", "not slow", *QUICK)
    assert actual.returncode == 0, actual.stdout + actual.stderr


@pytest.mark.slow
def test_no_test_of_the_core_imports_an_extension(without):
    actual = run(without, "--collect-only", "tests")
    assert actual.returncode == 0, actual.stdout[-5000:] + actual.stderr


@pytest.mark.slow
def test_the_tests_of_the_core_pass(without):
    actual = run(without, "-m", "not slow", *WIDE)
    assert actual.returncode == 0, actual.stdout[-5000:] + actual.stderr
