"""What is done around tests of several folders."""

import gc
import os
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path
from zlib import crc32

import jax
import pytensor
import pytest
from hypothesis import HealthCheck, settings
from numba.core.config import reload_config
from pytensor.compile.mode import optdb
from pytensor.misc.ordered_set import OrderedSet

# In `make test` nothing is compiled for longer than it runs; in `make test-all` all is as users have it.
# Tests run large programs once, on little data. PyTensor runs them in Python there: what its C compiler and
# Numba make of its own reference values says nothing about loopax. XLA leaves out most optimisations, and
# makes one LLVM module of a program instead of 32 small ones, which alone is a fifth of its time.
_QUICK = {"cxx": "", "mode": "FAST_COMPILE"}

_COMPILES_LITTLE = ["--xla_cpu_parallel_codegen_split_count=1"]
if jax.__version_info__ < (0, 11):  # a flag that a later XLA does not know ends the process
    # Compiling the same programs takes 1.7 s in place of 4.8.
    _COMPILES_LITTLE.append("--xla_cpu_use_fusion_emitters=false")

# Documents and users' scripts show the whole of loopax.
WHOLE = ["documents/test_all_of_loopax.py", "documents/test_documents.py", "types/test_types.py"]
HAS_EXTENSIONS = (Path(__file__).parents[1] / "loopax/extensions/__init__.py").is_file()
collect_ignore = [] if HAS_EXTENSIONS else WHOLE

# No clock fails a test, on a machine however slow, and no earlier run decides what this one tries.
settings.register_profile(
    "loopax",
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("loopax")

# A mesh has devices of its own in the tests, on a machine with one as well.
jax.config.update("jax_num_cpu_devices", 8)
# Most tests of JAX look at what XLA is given, and compile little; those of native code ask for it.
os.environ.setdefault("LOOPAX_LOOPS", "xla")
# Nothing comes from the disk, where an earlier state of this code may have written it.
os.environ["LOOPAX_CACHE_DIR"] = ""


def pytest_configure(config):
    config.stash[_quick] = config.option.markexpr == "not slow"
    if config.stash[_quick]:
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = " ".join([flags, *_COMPILES_LITTLE])
        os.environ["NUMBA_OPT"] = "1"  # a sixth of the time of tests of native code
        reload_config()
        jax.config.update("jax_disable_most_optimizations", True)
        for name, value in _QUICK.items():
            setattr(pytensor.config, name, value)


_quick = pytest.StashKey[bool]()
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]+")
_USUAL = {name: getattr(pytensor.config, name) for name in _QUICK}


@pytest.fixture
def as_users_have_it(request):
    """PyTensor's C compiler and default mode, all optimisations of XLA and LLVM, in `make test` too."""
    quick = request.config.stash[_quick]
    jax.config.update("jax_disable_most_optimizations", False)
    level = os.environ.pop("NUMBA_OPT", None)
    reload_config()
    with pytensor.config.change_flags(**_USUAL):
        yield
    if level is not None:
        os.environ["NUMBA_OPT"] = level
    reload_config()
    jax.config.update("jax_disable_most_optimizations", quick)


@pytest.fixture
def canonicalize(monkeypatch):
    """PyTensor's database of that name: what a test registers in it is gone after the test."""
    database = optdb["canonicalize"]
    names = {name: OrderedSet(rewrites) for name, rewrites in database.__db__.items()}
    monkeypatch.setattr(database, "__db__", defaultdict(OrderedSet, names))
    monkeypatch.setattr(database, "_names", set(database._names))
    return database


@pytest.fixture(scope="session")
def _cases(request):
    cases = defaultdict(list)
    for item in request.session.items:
        if hasattr(item, "callspec"):
            cases[item.path, item.originalname].append(item.callspec.params)
    return cases


@pytest.fixture
def drawn(request, _cases):
    """The parameters of each case of this test that the run has, for a program that they share.

    XLA takes a second to compile ten cases: those that ``sampled`` leaves out are traced at most.
    """
    return _cases[request.path, request.node.originalname]


def pytest_addoption(parser):
    parser.addoption(
        "--half",
        action="store_true",
        help="with -m 'not slow': the tests that fall to this Python, where another stack runs the others",
    )


def pytest_collection_modifyitems(config, items):
    """Deselect cases that ``sampled`` leaves out, and with ``--half`` the tests of the other stack.

    The modules with most tests come first: a module stays in one process, and a large one at the end would
    leave the others idle.
    """
    if by_address := [item.nodeid for item in items if _ADDRESS.search(item.nodeid)]:
        message = "the names of these tests hold an address, which differs between processes; give them ids"
        raise pytest.UsageError("\n  ".join([f"{message}:", *by_address]))
    if config.stash[_quick]:
        dropped = _not_drawn(items)
        if config.option.half:
            dropped.update(x for x in items if not _is_for_this_stack(x))
        config.hook.pytest_deselected(items=[x for x in items if x in dropped])
        items[:] = [x for x in items if x not in dropped]
    sizes = Counter(item.path for item in items)
    items.sort(key=lambda item: -sizes[item.path])


def _not_drawn(items):
    """The cases that functions marked ``sampled(n)`` leave to `make test-all`: all but n quick ones.

    A hash of the names draws them, so that new cases change little of what runs.
    """
    cases = defaultdict(list)
    for item in items:
        if (mark := item.get_closest_marker("sampled")) and not item.get_closest_marker("slow"):
            cases[item.path, item.originalname, mark.args].append(item)
    return {
        item
        for (_, _, (n,)), sampled in cases.items()
        for item in sorted(sampled, key=lambda x: crc32(x.nodeid.encode()))[n:]
    }


def _is_for_this_stack(item):
    """By a hash of its name, which does not follow the order in which tests stand; of its module's, where
    the tests of a module share what they compile."""
    if item.get_closest_marker("both_stacks"):
        return True
    shared = item.get_closest_marker("one_stack")
    name = item.nodeid.partition("::")[0] if shared else item.nodeid
    return crc32(name.encode()) % 2 == sys.version_info.minor % 2


def pytest_collection_finish():
    """What has been imported is not looked through for garbage again: a sixth of the time of the tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 50, 1000)


def pytest_runtest_teardown(item, nextitem):
    """In `make test-all` free what a module has compiled: a process of it took 20 GB."""
    if not item.config.stash[_quick] and (nextitem is None or nextitem.path != item.path):
        jax.clear_caches()
        gc.collect()
