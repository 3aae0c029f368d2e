"""What results depend on besides the program: each row of the table in loopax/cache/README.md varied."""

import os
import sys
import types
from contextlib import contextmanager

import jax
import numba
import pytensor.tensor as pt
import pytest
from numba.core.registry import cpu_target
from pytensor.configdefaults import config
from pytensor.graph.fg import FunctionGraph

from loopax.cache import environment
from loopax.cache.environment import NotKnown, contents, origin
from loopax.cache.graph_key import keyed
from loopax.ir import Scan
from loopax.numba_backend.cache.content import content_key
from loopax.numba_backend.callable.program import compile_program
from loopax.numba_backend.pytensor_mode.conversions import native_function
from tests.cache.test_graph_key import with_loop


def graph_key():
    x = pt.dvector("x")
    actual = keyed([x], [pt.exp(x)])
    return None if actual is None else actual.key


def native_key():
    x = pt.dvector("x")
    graph = FunctionGraph([x], [pt.exp(x)], clone=True)
    return content_key(compile_program(graph).variants.find(()).py_func)


def key_for_pytensor():
    """That of a loop in PyTensor's mode NUMBA, which PyTensor keeps."""
    _, [total] = with_loop()
    node = next(v.owner for v in [total, *total.owner.inputs] if isinstance(v.owner.op, Scan))
    return native_function(node.op, node)[1]


ALL = {"graph": graph_key, "native": native_key, "PyTensor": key_for_pytensor}
NATIVE = {name: ALL[name] for name in ("native", "PyTensor")}


@contextmanager
def changed(owner, name, value):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, value)
        yield


def package_changed(package):
    real = environment.contents
    return changed(environment, "contents", lambda name: real(name) + "!" * (name == package))


def of_another_processor():
    codegen = type(cpu_target.target_context.codegen())
    return changed(codegen, "magic_tuple", lambda self: ("x86_64", "another", "+sse"))


ROWS = {
    "Python": (ALL, lambda: changed(sys, "version", "3.99")),
    **{name: (ALL, lambda name=name: package_changed(name)) for name in environment.PACKAGES},
    "fastmath": (ALL, lambda: config.change_flags(numba__fastmath=False)),
    "floatX": (ALL, lambda: config.change_flags(floatX="float32")),
    "comparisons": (ALL, lambda: changed(config._config_var_dict["tensor__cmp_sloppy"], "val", 1)),
    "a flag of JAX's": (ALL, lambda: jax.numpy_rank_promotion("raise")),
    "precision of JAX": (ALL, lambda: jax.default_matmul_precision("bfloat16")),
    "checks of bounds": (NATIVE, lambda: changed(numba.config, "BOUNDSCHECK", 1)),
    "LLVM's vectors": (NATIVE, lambda: changed(numba.config, "SLP_VECTORIZE", 7)),
    "LLVM's level": (NATIVE, lambda: changed(numba.config, "OPT", 0)),
    "processor": (NATIVE, of_another_processor),
}


@pytest.mark.sampled(29)
@pytest.mark.parametrize(
    ("row", "kind"), [(row, kind) for row, (kinds, _) in ROWS.items() for kind in kinds]
)
def test_what_differs_in_a_row_has_another_key(row, kind):
    _, varied = ROWS[row]
    key = ALL[kind]
    before = key()
    with varied():
        other = key()
    assert None not in (before, other)
    assert before != other
    assert key() == before


def test_what_is_printed_makes_no_difference():
    before = graph_key(), native_key()
    with config.change_flags(optimizer_verbose=True, traceback__limit=3):
        assert (graph_key(), native_key()) == before


# -- packages ----------------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path, monkeypatch):
    """One of two files and a library, from long ago, and what to do to one of them."""
    folder = tmp_path / "a_package"
    (folder / "inner").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path)

    def write(name, text, time=10**9):
        (folder / name).write_text(text)
        os.utime(folder / name, (time, time))

    write("__init__.py", "")
    write("inner/ops.py", "K = 2.0")
    write("fast.so", "code")
    return write


def digest():
    return contents.__wrapped__("a_package")  # not that of before


@pytest.mark.parametrize("folder", ["", "kept"])
@pytest.mark.parametrize(
    ("name", "text", "time"),
    [
        ("inner/ops.py", "K = 3.0", 10**9),  # of the same size and time
        ("inner/ops.py", "K = 2.00", 10**9),
        ("inner/more.py", "", 10**9),
        ("fast.so", "code", 10**9 + 1),
    ],
)
def test_a_file_that_is_edited(package, tmp_path, monkeypatch, folder, name, text, time):
    monkeypatch.setenv("LOOPAX_CACHE_DIR", folder and str(tmp_path / folder))
    before = digest()
    assert digest() == before
    package(name, text, time)
    assert digest() != before


def test_the_time_of_a_source_makes_no_difference(package):
    before = digest()
    package("inner/ops.py", "K = 2.0", 10**9 + 1)
    assert digest() == before


def test_nothing_is_known_of_what_is_younger_than_the_process(package):
    package("inner/ops.py", "K = 3.0", environment._BEGAN / 1e9 + 60)
    with pytest.raises(NotKnown):
        digest()


def a_module(name, file):
    module = types.ModuleType(name)
    module.__file__ = file
    return module


@pytest.mark.parametrize(
    "module",
    [
        a_module("test", "/home/somebody/test.py"),  # as one of the standard library
        a_module("pytensor.own", "/home/somebody/own.py"),
        a_module("somebodys_package", "/home/somebody/package/__init__.py"),
        a_module("numpy_own", None),
        sys.modules["__main__"],
    ],
    ids=lambda module: module.__name__,
)
def test_a_users_module_is_not_known_by_its_name(monkeypatch, module):
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with pytest.raises(NotKnown):
        origin.__wrapped__(module.__name__)


@pytest.mark.parametrize(
    "name", ["builtins", "math", "enum", "numpy.linalg", "pytensor.tensor.basic"]
)
def test_a_library_is_known(name):
    assert origin(name) == origin.__wrapped__(name)
