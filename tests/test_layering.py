"""The folders are the pipeline, and what each may import is what makes them one.

    base  <-  cache, facts                 (of loopax: themselves and base, which all of these import)
    facts  <-  ir                          (and all that import ir)
    ir  <-  importer, calling              (themselves and ir)
    ir, importer  <-  frontend, lowering   (themselves and these two)
    ir, importer, lowering, calling  <-  *_backend   (themselves and these four; never each other)
    ir, lowering  <-  explanation          (the same)
    ir, importer, frontend  <-  diagnosis  (themselves and these three)
    ir, diagnosis  <-  comparison          (themselves and these two)
    base  <-  numerics                     (itself and base)
    all of these  <-  extensions           (and no folder imports them)

One folder knows both backends: kernels, native code as a primitive of JAX, stands above them.

No file imports, in however many steps, itself: who reads a file reads those that it imports, and that ends.

jax is imported by jax_backend, numerics and the pytree helpers of frontend, numba by numba_backend and
numerics, so that each backend can be read, and can break with a release of its target, alone. What neither
promises to keep is imported by the adapters in base.upstream alone, and an adapter counts as its library.
The files are parsed, not imported: an import in a function or under TYPE_CHECKING counts like any other.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# What the modules of a folder may import of loopax. TOP may import all of it: the modules beside
# the folders (__init__, transpile, explaining, __main__), the door for PyMC, and the demo, written as a
# user's program.
LAYERS = {
    "base": {"base"},
    "cache": {"cache", "base"},
    "numerics": {"numerics", "base"},
    "facts": {"facts", "base"},
    "ir": {"ir", "facts", "base"},
    "importer": {"importer", "ir", "facts", "base"},
    "frontend": {"frontend", "importer", "ir", "facts", "base"},
    "lowering": {"lowering", "importer", "cache", "ir", "facts", "base"},
    "calling": {"calling", "ir", "facts", "base"},
    "comparison": {"comparison", "diagnosis", "ir", "facts", "base"},
    "diagnosis": {"diagnosis", "frontend", "importer", "ir", "facts", "base"},
    "explanation": {"explanation", "lowering", "ir", "facts", "base"},
    "jax_backend": {
        *("jax_backend", "numerics", "calling", "lowering", "importer", "ir", "facts", "base")
    },
    "numba_backend": {
        *("numba_backend", "numerics", "calling", "lowering", "importer", "cache"),
        *("ir", "facts", "base"),
    },
    "kernels": {
        *("kernels", "jax_backend", "numba_backend", "numerics", "calling", "lowering"),
        *("importer", "cache", "ir", "facts", "base"),
    },
}
LAYERS["extensions"] = {"extensions", *LAYERS}
TOP = {"", "demo", "pymc"}

# Who may import a target. pytensor.link.<target> imports the target, so it counts as one. What kept results
# depend on is one list, with the flags of both targets.
TARGETS = {
    "jax": {
        "loopax.base.upstream.jax",
        "loopax.cache.environment",
        "loopax.jax_backend",
        "loopax.kernels",
        "loopax.frontend.loops.trees",
        "loopax.demo",
        "loopax.doctor",
        "loopax.extensions.parallel.loops",
        "loopax.numerics",
        "loopax.pymc.blackjax_loop",
        "loopax.pymc.checkpoints.blocks",
        "loopax.pymc.numpyro_loop",
    },
    "jax.extend": {"loopax.base.upstream.jax"},
    "jax.interpreters": {"loopax.base.upstream.jax"},
    # from_jaxpr reads JAX's programs into the IR, and traces none.
    "loopax.base.upstream.jax": {
        *("loopax.extensions.parallel.loops", "loopax.frontend.from_jaxpr"),
        *("loopax.jax_backend", "loopax.kernels"),
    },
    "jaxlib": {"loopax.jax_backend"},
    "pytensor.link.jax": {"loopax.jax_backend"},
    "numba": {
        "loopax.base.compiling",
        "loopax.base.upstream.numba",
        "loopax.cache.environment",
        "loopax.kernels.ffi",
        "loopax.numba_backend",
        "loopax.numerics",
        "loopax.demo",
        "loopax.pymc.c_functions",
    },
    "numba.core": {"loopax.base.upstream.numba"},
    "numba.np": {"loopax.base.upstream.numba"},
    "llvmlite": {"loopax.base.upstream.numba"},
    "loopax.base.upstream.numba": {
        *("loopax.base.compiling", "loopax.cache.environment", "loopax.kernels.ffi"),
        *("loopax.numba_backend", "loopax.numerics"),
    },
    "pytensor.link.numba": {"loopax.numba_backend"},
    "pymc": {"loopax.pymc"},
    "loopax.base.upstream.patching": {"loopax.pymc", "loopax.base.upstream"},
    "egglog": {"loopax.extensions.egraph"},
    # The core finds extensions by `loopax.base.extensions`, and works without them. The names that `loopax`
    # has of them are imported there under TYPE_CHECKING, which no program runs: for checkers and editors.
    "loopax.extensions": {"loopax.extensions"},
}

# The adapter that has PyTensor's private names.
PRIVATE = "loopax.base.upstream.pytensor"

# Private attributes that may be read anywhere: of the standard library and NumPy, which describe them, and
# names of loopax's own that another file than the one that defines them reads.
PRIVATE_ATTRIBUTES = {
    *("_at_fork_reinit", "_exit", "_fields", "_getframe", "_replace"),
    "_implementation",  # of NumPy's functions, for ``__array_function__``: NEP 18
    *("_arguments", "_made_of"),  # of callables, for functions that take one apart
}

# Who may call the loops and branches of JAX itself. All others call those of `manual_axes`, which also work
# inside of ``jax.shard_map``.
JAX_LOOPS = {"scan", "while_loop", "fori_loop", "cond"}
CALLERS_OF_JAX_LOOPS = {
    "loopax.numerics.manual_axes",
    "loopax.jax_backend.staging.kept_rules",  # asks what JAX's scan does, of a number
    # Chains of a sampler, whose functions run on whole devices.
    *("loopax.pymc.blackjax_loop", "loopax.pymc.numpyro_loop"),
}

# What a folder imports of nobody: its mathematics is of arrays and numbers.
FOREIGN = {"numerics": {"pytensor", "pymc"}}

# A name that says nothing about what is in the file collects everything.
NAMELESS = {"utils", "util", "helpers", "helper", "misc", "common"}


def python_files(*folders: str) -> list[Path]:
    return sorted(f for folder in folders for f in (ROOT / folder).rglob("*.py"))


PACKAGE = python_files("loopax")
ALL = python_files("loopax", "tests", "benchmarks", "examples")
# tests/ mirrors the package, whose folders already say what they are for.
CODE_FOLDERS = sorted({f.parent for f in python_files("loopax", "benchmarks", "examples")})


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def module_of(path: Path) -> str:
    """The dotted name: loopax/ir/ops/scan.py -> loopax.ir.ops.scan, loopax/ir/__init__.py -> loopax.ir."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imports_of(source: str, package: str) -> list[tuple[int, str]]:
    """Each (line, absolute dotted name) that the source of a module in `package` imports.

    `from a import b` is given as a.b: whether b is a module cannot be seen from here, and the rules
    below ask only for what a name starts with.
    """
    return [*_imports_of(source, package)]


def _imports_of(source: str, package: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                base = package.split(".")[: len(package.split(".")) - level + 1] if level else []
                base += [module] if module else []
                yield from ((node.lineno, ".".join([*base, alias.name])) for alias in names)
            # importlib.import_module("a.b"), import_module("a.b"), __import__("a.b")
            case ast.Call(
                func=ast.Attribute(attr="import_module")
                | ast.Name(id="import_module" | "__import__"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield node.lineno, name


def lines_for_checkers(source: str) -> set[int]:
    """The lines under ``if TYPE_CHECKING:``."""
    return {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for part in node.body
        for line in range(part.lineno, (part.end_lineno or part.lineno) + 1)
    }


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def layer_of(module: str) -> str:
    """The folder of loopax that a module, or a name in it, belongs to; "" for those beside them."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in LAYERS.keys() | TOP else ""


def violations(module: str, package: str, source: str) -> Iterator[str]:
    layer = layer_of(module)
    checked = lines_for_checkers(source) if module == "loopax" else set()
    for line, name in imports_of(source, package):
        if line in checked:
            continue
        if within(name, "loopax") and layer not in TOP and layer_of(name) not in LAYERS[layer]:
            may = ", ".join(f"loopax.{one}" for one in sorted(LAYERS[layer]))
            yield f"line {line}: imports {name}; of loopax, {layer} imports only {may}"
        if name.startswith("pytensor.") and "._" in name and not within(module, PRIVATE):
            yield f"line {line}: imports {name}, a private name; only {PRIVATE} may"
        for foreign in FOREIGN.get(layer, ()):
            if within(name, foreign):
                yield f"line {line}: imports {name}; {layer} knows nothing of {foreign}"
        for target, users in TARGETS.items():
            if within(name, target) and not any(within(module, user) for user in users):
                yield f"line {line}: imports {name}; only {', '.join(sorted(users))} may"


def private_attributes(source: str) -> Iterator[tuple[int, str]]:
    """Each (line, expression) that reads or writes a private attribute that the source does not define.

    An attribute of ``self`` or ``cls`` may be inherited, and counts as defined.
    """
    if not re.search(r"(?<!\bself)(?<!\bcls)\._[a-zA-Z]|attr\([^()]*\"_[a-zA-Z]", source):
        return  # to parse all files takes seconds
    actual: list[tuple[int, str, ast.AST]] = []
    defined = set(PRIVATE_ATTRIBUTES)
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                defined.add(name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                defined.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=context):
                defined |= {name} if isinstance(context, ast.Store) else set()
            case (
                ast.Attribute(attr=name)
                | ast.Call(
                    func=ast.Name(id="getattr" | "hasattr" | "setattr"),
                    args=[_, ast.Constant(value=str(name)), *_],
                )
            ):
                if name.startswith("_") and not name.startswith("__"):
                    actual.append((node.lineno, name, node))
            # object.__setattr__(self, "_name", value), in a frozen dataclass
            case ast.Call(
                func=ast.Attribute(attr="__setattr__"), args=[_, ast.Constant(value=name), _]
            ):
                defined.add(name)
    yield from ((line, ast.unparse(node)) for line, name, node in actual if name not in defined)


def test_private_attributes_of_other_libraries_are_read_in_adapters() -> None:
    actual = [
        f"{name_of(path)}, line {line}: {expression}"
        for path in PACKAGE
        if path.parent != ROOT / "loopax" / "base" / "upstream"
        for line, expression in private_attributes(path.read_text(encoding="utf-8"))
    ]
    assert not actual, "write a function in loopax/base/upstream:\n" + "\n".join(actual)


@pytest.mark.parametrize(
    ("source", "expressions"),
    [
        ("op._props_dict()", ["op._props_dict"]),
        ("dispatcher._cache = {}", ["dispatcher._cache"]),
        ('getattr(op, "_rule", None)', ["getattr(op, '_rule', None)"]),
        ("class A:\n    _key: int\n    def f(self, other): return self._a, other._key", []),
        ("class A:\n    def __init__(self): self._a = 1\ndef f(x): return x._a", []),
        ("op.__props__, args._replace(n=1)", []),
    ],
)
def test_a_private_attribute_is_seen(source: str, expressions: list[str]) -> None:
    assert [actual for _, actual in private_attributes(source)] == expressions


def jax_loops(source: str) -> Iterator[tuple[int, str]]:
    """Each (line, name) where the source names a loop or a branch of ``jax.lax``."""
    for node in ast.walk(ast.parse(source)) if re.search(r"\blax\b", source) else ():
        match node:
            case ast.Attribute(attr=name) if ast.unparse(node.value) in ("lax", "jax.lax"):
                names = {name}
            case ast.ImportFrom(module="jax.lax", names=imported):
                names = {alias.name for alias in imported}
            case _:
                continue
        yield from ((node.lineno, name) for name in names & JAX_LOOPS)


def test_jax_loops_are_called_in_one_place() -> None:
    actual = {
        module: calls
        for path in PACKAGE
        if (calls := [*jax_loops(path.read_text(encoding="utf-8"))]) and (module := module_of(path))
    }
    assert actual.keys() == CALLERS_OF_JAX_LOOPS, "call those of loopax.numerics.manual_axes"


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("from jax import lax\nlax.scan(f, x)", ["scan"]),
        ("loop = partial(jax.lax.while_loop, going)", ["while_loop"]),
        ("from jax.lax import cond as either", ["cond"]),
        ("from loopax.numerics.manual_axes import scan\nscan(f, x)  # a lax.scan", []),
        ("lax.mul(x, y)", []),
    ],
)
def test_a_jax_loop_is_seen(source: str, names: list[str]) -> None:
    assert [name for _, name in jax_loops(source)] == names


def package_of(path: Path) -> str:
    module = module_of(path)
    return module if path.name == "__init__.py" else module.rpartition(".")[0]


def test_imports_keep_to_the_layers() -> None:
    actual = [
        f"{name_of(path)}, {violation}"
        for path in PACKAGE
        for violation in violations(
            module_of(path), package_of(path), path.read_text(encoding="utf-8")
        )
    ]
    assert not actual, "\n".join(actual)


def imports_within(sources: dict[str, str], packages: set[str]) -> dict[str, set[str]]:
    """Which modules each of ``sources`` (text by dotted name) imports of them; ``packages`` are folders."""
    return {
        module: {
            name if name in sources else name.rpartition(".")[0]
            for _, name in imports_of(
                source, module if module in packages else module.rpartition(".")[0]
            )
        }
        & sources.keys() - {module}
        for module, source in sources.items()
    }


def import_cycle(imports: dict[str, set[str]]) -> list[str]:
    """Modules that import one another in a circle, in order, the first again at the end; or nothing."""
    clear: set[str] = set()
    for start in imports:
        path, ahead = [start], [iter(sorted(imports[start]))]
        while path:
            module = next(ahead[-1], None)
            if module is None:
                clear.add(path.pop())
                ahead.pop()
            elif module in path:
                return [*path[path.index(module) :], module]
            elif module not in clear:
                path.append(module)
                ahead.append(iter(sorted(imports[module])))
    return []


def test_no_module_imports_itself_through_others() -> None:
    sources = {module_of(path): path.read_text(encoding="utf-8") for path in PACKAGE}
    packages = {module_of(path) for path in PACKAGE if path.name == "__init__.py"}
    circle = import_cycle(imports_within(sources, packages))
    assert not circle, " -> ".join(circle)


@pytest.mark.parametrize(
    "source",
    [
        "from p.a import f",
        "from . import a",
        "def g():\n    from .a import f",
        "if TYPE_CHECKING:\n    import p.a",
        "import_module('p.a')",
    ],
)
def test_a_circle_is_seen(source: str) -> None:
    sources = {
        "p": "",
        "p.a": "from p import b",
        "p.b": "from p.c import x\nimport os",
        "p.c": source,
    }
    assert import_cycle(imports_within(sources, {"p"})) == ["p.a", "p.b", "p.c", "p.a"]
    assert not import_cycle(imports_within({**sources, "p.c": "from p import d"}, {"p"}))


USED = """
import sys
from pathlib import Path
import numpy as np, pytensor.tensor as pt
import loopax

x = pt.vector("x")
for options in {"loops": "xla"}, {"loops": "native"}, {"backend": "numba"}:
    loopax.jaxify([x], 2 * x, **options)(np.ones(2))
root = Path(loopax.__file__).parent
files = [p.relative_to(root.parent).with_suffix("") for p in root.rglob("*.py")]
every = {".".join(p.parts).removesuffix(".__init__") for p in files}
print(*sorted(m for m in every - set(sys.modules) if not m.startswith("loopax.extensions")))
"""
# What is imported when it is asked for: a program of its own, PyTensor's mode NUMBA, and PyMC's door.
ON_DEMAND = {
    "loopax.__main__",
    "loopax.demo",
    "loopax.demo.gallery",
    "loopax.demo.nile",
    "loopax.demo.picture",
    "loopax.doctor",
    "loopax.numba_backend.callable.array_function",
    "loopax.numba_backend.pytensor_mode.conversions",
    "loopax.base.upstream.nutpie",
    "loopax.base.upstream.patching",
    "loopax.base.upstream.pymc",
    "loopax.pymc",
    "loopax.pymc.arguments",
    "loopax.pymc.blackjax_loop",
    "loopax.pymc.c_functions",
    "loopax.pymc.checkpoints",
    "loopax.pymc.checkpoints.blocks",
    "loopax.pymc.checkpoints.folder",
    "loopax.pymc.checkpoints.nutpie_chains",
    "loopax.pymc.checkpoints.pymc_steps",
    "loopax.pymc.checkpoints.resuming",
    "loopax.pymc.checkpoints.run_parts",
    "loopax.pymc.checkpoints.step_state",
    "loopax.pymc.diagnosing",
    "loopax.pymc.log_density",
    "loopax.pymc.model_functions",
    "loopax.pymc.numpyro_loop",
    "loopax.pymc.sampling",
    "loopax.pymc.start",
}


@pytest.mark.slow
def test_use_imports_every_module() -> None:
    """Rules register on import. A module that only tests import would be missing without a word.

    Those of extensions are imported when they are asked for: see tests/extensions.
    """
    run = subprocess.run([sys.executable, "-c", USED], capture_output=True, text=True, check=True)
    assert set(run.stdout.split()) == ON_DEMAND


def test_every_folder_has_a_layer() -> None:
    folders = {
        path.relative_to(ROOT / "loopax").parts[0]
        for path in PACKAGE
        if path.parent != ROOT / "loopax"
    }
    assert folders <= LAYERS.keys() | TOP, "a new folder needs a line in LAYERS"


def test_file_names_say_what_is_inside() -> None:
    nameless = [
        name_of(path)
        for path in ALL
        if NAMELESS & {part.strip("_") for part in path.relative_to(ROOT).with_suffix("").parts}
    ]
    assert not nameless, f"{nameless}: name each for the one thing it does"


CLOCK = re.compile(
    r"\b(perf_counter|monotonic)\b|\btime\.time\(|\btimeout=|\.(wait|join|poll)\([\d.]+\)"
)


def test_no_test_depends_on_a_clock() -> None:
    """A hang is ended by pytest-timeout alone, so that a slow machine fails no test."""
    actual = [
        f"{name_of(path)}, line {k}: {line.strip()}"
        for path in python_files("tests")
        if path.name.startswith("test_") and path != Path(__file__)
        for k, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if CLOCK.search(line)
    ]
    assert not actual, "\n".join(actual)


def test_every_code_folder_has_a_readme() -> None:
    readmes = [folder / "README.md" for folder in CODE_FOLDERS]
    absent = [name_of(readme) for readme in readmes if not readme.is_file()]
    assert not absent, f"{absent}: what problem, which invariants, in what order to read"
    lines = {name_of(r): len(r.read_text(encoding="utf-8").splitlines()) for r in readmes}
    unread = {name: n for name, n in lines.items() if not 10 <= n <= 30}
    assert not unread, f"{unread}: 10 to 30 lines is what gets read"


# The rules above pass on an empty list of imports, so here is that the list is not empty.


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import a.b as c", "a.b"),
        ("from a import b", "a.b"),
        ("from . import b", "loopax.ir.b"),
        ("from .a import b", "loopax.ir.a.b"),
        ("from .. import frontend", "loopax.frontend"),
        ("from ..frontend.trees import flatten", "loopax.frontend.trees.flatten"),
        ("def f():\n    import a", "a"),
        ("if TYPE_CHECKING:\n    from a import B", "a.B"),
        ("importlib.import_module('a.b')", "a.b"),
    ],
)
def test_imports_are_found(source: str, name: str) -> None:
    assert [actual for _, actual in imports_of(source, "loopax.ir")] == [name]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("loopax.ir.ops.scan", "from loopax import jaxify"),
        ("loopax.ir.ops.scan", "import loopax.lowering.order"),
        ("loopax.ir.ops.scan", "from ...lowering import order"),
        ("loopax.ir.ops.scan", "import jax"),
        ("loopax.frontend.trace", "import jax.numpy as jnp"),
        ("loopax.frontend.loops.trees", "from pytensor.link.jax.dispatch import jax_funcify"),
        ("loopax.ir.ops.watch", "from pytensor.graph.replace import _vectorize_node"),
        ("loopax.lowering.order", "from loopax.frontend import scan"),
        ("loopax.calling.context", "from loopax.lowering import lower"),
        ("loopax.calling.context", "from loopax.jax_backend import SharedContext"),
        ("loopax.calling.context", "import jax"),
        ("loopax.explanation.page", "from loopax.frontend import read_program"),
        ("loopax.explanation.page", "from loopax.jax_backend import JaxFunction"),
        ("loopax.lowering.record", "from loopax.explanation import Explanation"),
        ("loopax.jax_backend.call", "from loopax.numba_backend import call"),
        ("loopax.jax_backend.call", "from pytensor.link.numba import dispatch"),
        ("loopax.numba_backend.call", "from loopax.jax_backend import call"),
        ("loopax.numba_backend.call", "from jax import lax"),
        ("loopax.transpile", "import numba"),
        ("loopax.numerics.special.bessel", "from loopax.ir.shapes import lengths"),
        ("loopax.numerics.special.bessel", "import pytensor.tensor as pt"),
        ("loopax.transpile", "from loopax.extensions.egraph.optimize import egraph"),
        ("loopax.transpile", "if TYPE_CHECKING:\n    import loopax.extensions.egraph"),
        ("loopax", "from loopax.extensions.egraph.optimize import egraph"),
        ("loopax.extensions.egraph.optimize", "from loopax.transpile import jaxify"),
    ],
)
def test_a_forbidden_import_is_seen(module: str, source: str) -> None:
    assert len(list(violations(module, module.rpartition(".")[0], source))) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("loopax.ir.ops.scan", "from loopax.ir import check"),
        ("loopax.ir.ops.scan", "import jaxtyping"),
        ("loopax.frontend.loops.trees", "import jax"),
        ("loopax.lowering.order", "from . import hoist"),
        ("loopax.jax_backend.ops.linalg", "from pytensor.link.jax.dispatch import jax_funcify"),
        ("loopax.numba_backend.call", "from loopax.lowering import lower"),
        ("loopax.numba_backend.call", "from loopax.calling import Arguments"),
        ("loopax.explanation.page", "from loopax.lowering.record import Stage"),
        ("loopax.transpile", "from loopax.numba_backend import compile"),
        ("loopax.demo.garch", "import jax, loopax"),
    ],
)
def test_an_allowed_import_is_let_through(module: str, source: str) -> None:
    assert not list(violations(module, module.rpartition(".")[0], source))
