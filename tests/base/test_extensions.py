"""The registry of extensions: what each record names is there, and what is said where one is missing."""

import sys
from importlib import import_module

import numpy as np
import pytensor.tensor as pt
import pytest

import loopax
from loopax.base import extensions
from loopax.base.extensions import import_rules, installed_extensions, provided, required
from loopax.cache import environment
from loopax.ir.ops.calling_convention import Newton

x = pt.dvector("x")


def test_each_record_bears_the_name_of_its_folder_and_names_what_is_there():
    for name, record in installed_extensions().items():
        assert record.name == name
        for part in record.parts:
            assert record.part(part) is record.part(part)
        for modules in record.rules.values():
            assert [*map(import_module, modules)]


@pytest.fixture
def none_installed(monkeypatch):
    """The registry of an installation without ``loopax/extensions``."""
    installed_extensions.cache_clear()
    monkeypatch.setattr(extensions, "find_spec", lambda name: None)
    yield
    installed_extensions.cache_clear()


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (
            lambda: loopax.jaxify([x], x, optimize="egraph"),
            ImportError,
            "optimize='egraph' needs the extension 'egraph'.*loopax/extensions/egraph.*'none'",
        ),
        (lambda: loopax.jaxify([x], x, parallel=True), ImportError, "parallel=True needs .*'auto'"),
        (
            lambda: loopax.scan(lambda c, r: (c * r, c), 1.0, x, parallel="newton"),
            ImportError,
            "parallel='newton' needs the extension 'parallel'",
        ),
        (
            lambda: loopax.jacobian(lambda v: v**2, sparse=True)(np.ones(3)),
            ImportError,
            "sparse=True needs the extension 'sparse_jacobians'.*a dense matrix",
        ),
        (
            lambda: loopax.kalman_filter,
            AttributeError,
            r"loopax\.kalman_filter needs the extension 'parallel'.*loopax\.scan",
        ),
    ],
)
def test_what_is_asked_for_and_missing_is_said(none_installed, call, error, match):
    with pytest.raises(error, match=match):
        call()


def test_a_part_that_the_core_can_do_without_is_none(none_installed):
    assert installed_extensions() == {} and provided("parallel", "loop_in_parallel") is None
    import_rules("jax")
    f = loopax.jaxify([x], loopax.scan(lambda c, r: (c + r, c), 0.0, x)[1], loops="xla")
    np.testing.assert_array_equal(f(np.arange(4.0)), [0, 0, 1, 3])


def test_an_option_that_was_pickled_elsewhere_is_refused_as_well(none_installed):
    """A loop that asks for Newton's method, in an installation that cannot have written it."""
    loop = loopax.scan(lambda c, r: (pt.tanh(c) * r, c), 0.5, x)[0].owner
    asking = loop.op.with_options(parallel=Newton())
    with pytest.raises(ImportError, match="parallel='newton' needs the extension"):
        loopax.jaxify([x], asking(*loop.inputs)[0], loops="xla")(np.ones(3))


def test_a_user_sees_the_names_of_the_extensions_that_are_there():
    assert all(hasattr(loopax, name) for name in loopax.__all__)
    assert ("kalman_filter" in dir(loopax)) == ("parallel" in installed_extensions())
    with pytest.raises(AttributeError, match="has no attribute 'kalman'"):
        _ = loopax.kalman


def test_a_folder_with_a_record_is_an_extension(tmp_path, monkeypatch):
    """As loopax/extensions/README.md says how to add one: nothing else names it."""
    package = pytest.importorskip(
        "loopax.extensions", reason="this installation has no such folder"
    )
    folder = tmp_path / "powers"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from loopax.base.extensions import Extension\n"
        'EXTENSION = Extension("powers", {"square": "loopax.extensions.powers.squares:square"})\n'
    )
    (folder / "squares.py").write_text("def square(x):\n    return x * x\n")
    before = installed_extensions()
    installed_extensions.cache_clear()
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    try:
        assert provided("powers", "square")(3) == 9
        assert required("powers", "square", "nothing").name == "powers"
        assert installed_extensions().keys() == {*before, "powers"}
    finally:
        installed_extensions.cache_clear()
        for name in ("loopax.extensions.powers", "loopax.extensions.powers.squares"):
            sys.modules.pop(name, None)


def test_the_key_of_what_is_kept_on_disk_tells_installations_apart(tmp_path, monkeypatch):
    """Results of an installation without an extension are not read by one that has it."""
    folder = tmp_path / "package"
    (folder / "extensions").mkdir(parents=True)
    for name in ("core.py", "extensions/power.py"):
        (folder / name).write_text("")
    monkeypatch.setattr(environment, "_root", lambda package: str(folder))
    monkeypatch.setattr(environment, "_BEGAN", 2**63)
    whole = environment.contents.__wrapped__("loopax")
    (folder / "extensions/power.py").unlink()
    assert environment.contents.__wrapped__("loopax") != whole
