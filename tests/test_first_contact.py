"""What people meet first: names, texts, and the errors for the mistakes that people make."""

import importlib.metadata
import math
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.special
import scipy.stats

import loopax
from loopax import LoopTypeError, MissingInputError, StatefulFunctionError, doctor, jaxify
from loopax.__main__ import main
from loopax.frontend.numpy_functions import _UFUNCS

pytestmark = pytest.mark.both_stacks

BOTH = pytest.mark.parametrize("backend", ["jax", "numba"])
X, N = pt.dvector("x"), pt.lscalar("n")


def test_names_of_the_package():
    assert loopax.__version__ == importlib.metadata.version("loopax")
    assert set(dir(loopax)) == {*loopax.__all__, "__version__", "pymc"}
    with pytest.raises(AttributeError, match="no attribute 'jaxfy'"):
        _ = loopax.jaxfy


@BOTH
def test_types_are_in_repr_and_help(backend):
    f = jaxify([X, N], {"value": (X * N).sum(), "rows": [pt.outer(X, X)]}, backend=backend)
    types = "program: (x: float64[?], n: int64[]) -> {'rows': [float64[?, ?]], 'value': float64[]}"
    assert repr(f) == f"{type(f).__name__}({types})" and f.__doc__ == types

    scale = pytensor.shared(np.ones(2), name="scale")
    rng = pytensor.shared(np.random.default_rng(1), name="rng")
    with pytest.warns(UserWarning, match="noisy draws from 'rng', which nothing updates") as warned:
        drawn = jaxify([], scale + rng.normal(size=2)[1], name="noisy", backend=backend)
    assert [w.filename for w in warned] == [__file__]
    assert repr(drawn) == f"{type(drawn).__name__}(noisy: () -> float64[2])"
    assert "reads the shared variables rng: generator, scale: float64[?]." in drawn.__doc__


def test_a_structure_that_only_holds_arrays_has_a_repr():
    class Pair:
        def __init__(self, a, b):
            self.sum = a + b

    f = jaxify([X], X.sum())
    f.program.build = lambda leaves: Pair(*leaves, *leaves)
    f._describe(f._arguments)
    assert repr(f) == "JaxFunction(program: (x: float64[?]) -> [float64[]])"


@BOTH
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.ones((2, 3)), r"It has 1 axis more: .*loopax\.vmap\(f\)"),
        (1.0, r"It lacks 1 of its axes: x\[None\]"),
        ("1.5", r"text was given.*float\('1\.5'\)"),
        (np.array(["a"]), "text was given"),
        ([[1.0, 2.0], [3.0]], "rows of unequal lengths"),
        (np.array([1, None]), "of objects was given"),
        (None, "None was given"),
        ({"x": np.ones(2)}, r"a dict was given.*f\(\*\*values\)"),
        (np.ones(2) * 1j, r"It would lose something.*x\.astype\('float64'\)"),
        (jnp.ones((2, 3)), "It has 1 axis more"),
    ],
)
def test_values_that_do_not_fit(given, message, backend):
    with pytest.raises(LoopTypeError, match=message) as caught:
        jaxify([X], X.sum(), backend=backend)(given)
    assert "Input 'x' (argument 0) must be float64 of rank 1" in str(caught.value)


def test_static_lengths_that_do_not_fit():
    with pytest.raises(LoopTypeError, match="Lengths are part of the input's type"):
        jaxify([pt.dvector("x", shape=(3,))], X.sum(), givens={X: pt.ones(3)})(np.ones(2))


@BOTH
def test_a_point_by_position(backend):
    f = jaxify([X, N], (X * N).sum(), backend=backend)
    point = {"x": np.ones(2), "n": 3}
    with pytest.raises(MissingInputError, match=r"To pass a dict, write program\(\*\*values\)"):
        f(point)
    assert f(**point) == 6


def test_draws_in_the_place_of_value_variables():
    draw = pytensor.shared(np.random.default_rng(1)).normal()[1]
    draw.name = "draw"
    value = draw.type("draw_value")
    with pytest.raises(MissingInputError, match=r"draw are computed from others.*jaxify\(model\)"):
        jaxify([draw], -(value**2))


@BOTH
def test_apply_without_a_context(backend):
    total = pytensor.shared(0.0, name="total")
    f = jaxify([X], total, updates={total: total + X.sum()}, backend=backend)
    for wrong in ((), (np.ones(2),), ({}, np.ones(2))):
        with pytest.raises(StatefulFunctionError, match=r"f\.apply\(f\.init_context\(\), \.\.\.\)"):
            f.apply(*wrong)


def test_explain_without_arguments():
    def f(x, y, n=1):
        return x + y

    for given in (f, jaxify(f), jaxify(f, backend="numba")):
        with pytest.raises(TypeError, match=r"for x, y: explain\(f, np\.ones\(3\)\)"):
            loopax.explain(given)
    assert loopax.explain(lambda n=1: pt.ones(n)).counts_read.outside


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x if x > 0 else -x,
        lambda x: loopax.scan(lambda c, r: (c if r > 0 and c > 0 else r, None), x, pt.ones(3))[0],
        lambda x: loopax.while_loop(lambda c: c < 3 and c > 1, lambda c: c + 1, x),
        lambda x: loopax.cond(x > 0, lambda x: x if x > 1 else 1.0, lambda x: x, x),
        lambda x: loopax.grad(lambda x: x if x > 0 else -x)(x),
        lambda x: loopax.vmap(lambda x: x if x > 0 else -x)(x[None]),
    ],
)
def test_a_python_if_on_a_variable(use):
    with pytest.raises(LoopTypeError, match=r"Python `if`.*pt\.switch.*loopax\.cond"):
        jaxify(use)(1.0)


def test_numbers_of_variables_and_jax_numpy_in_a_step():
    with pytest.raises(LoopTypeError, match=r"loopax\.from_jax\(jnp\.sin\)"):
        loopax.scan(lambda c, x: (c + jnp.sin(x), None), 0.0, X)
    with pytest.raises(LoopTypeError, match=r"In double: float\(x\) .* need a number now"):

        @jaxify
        def double(x):
            return 2 * float(x)

        double(1.0)
    with pytest.raises(LoopTypeError, match=r"loopax\.fori_loop\(0, n, body, init\)"):
        jaxify(lambda n: sum(k * pt.ones(()) for k in range(n)))(3)

    for use, message in (
        (lambda x: np.rot90(x), r"np\.rot90 takes arrays.*from_jax\(jnp\.rot90\)"),
        (lambda x: np.minimum.reduce(x), r"np\.minimum\.reduce takes arrays"),
        (lambda x: scipy.special.ellipj(x, 0.5), r"scipy\.special\.ellipj takes arrays"),
        (lambda x: scipy.special.logsumexp(x), r"pt\.logsumexp\(x\) for scipy"),
        (lambda x: scipy.stats.norm.logpdf(x), r"pm\.logp\(pm\.Normal"),
        (lambda x: math.sin(x[0]), r"pt\.sin\(x\) for math\.sin\(x\)"),
        (lambda x: x / len(x), r"x\.shape\[0\]"),
        (lambda x: sum(r for r in x), r"loopax\.map\(f, x\)"),
    ):
        with pytest.raises(LoopTypeError, match=message):
            jaxify(use)(np.ones(2))
    # Other errors of the user's are as they are.
    with pytest.raises(TypeError, match="unsupported operand") as caught:
        jaxify(lambda x: x + len({}) + "a" - object())(1.0)
    assert not isinstance(caught.value, LoopTypeError)


OF_JAX = {
    "jitted": lambda x: jnp.exp(x),
    "of several": lambda x: jnp.where(x > 0, x, 0.0),
    "relu": lambda x: jax.nn.relu(x),
    "of a list": lambda x: jnp.stack([x, x]),
    "lax": lambda x: jax.lax.add(x, x),
    "zeros_like": lambda x: jnp.zeros_like(x),
    "array": lambda x: jnp.asarray(x),
    "draws": lambda x: jax.random.normal(x),
    "print": lambda x: jax.debug.print("{}", x),
    "cond": lambda x: jax.lax.cond(x > 0, lambda: 1, lambda: 2),
    "jit": lambda x: jax.jit(lambda a: a + 1)(x),
    "scan": lambda x: jax.lax.scan(lambda c, y: (c, y), x, jnp.ones(3)),
}


@pytest.mark.parametrize("use", OF_JAX.values(), ids=OF_JAX)
def test_functions_of_jax_on_a_variable(use):
    """JAX has a wording for each; all are answered in one way, in a step and in a function."""
    for run in (lambda: loopax.scan(lambda c, x: (use(c), c), 0.0, X), lambda: jaxify(use)(1.0)):
        with pytest.raises(LoopTypeError, match=r"loopax\.from_jax\(jnp\.sin\)"):
            run()


def test_an_array_of_jax_among_variables():
    for use in (lambda x: jnp.ones(2) * x, lambda x: x * jnp.ones(2)):
        with pytest.raises(LoopTypeError, match=r"np\.asarray\(a\)"):
            jaxify(use)(np.ones(2))


OF_NUMPY = {
    "dot": lambda x: np.dot(x, x.T),
    "norm": lambda x: np.linalg.norm(x),
    "argmax": lambda x: np.argmax(x),
    "sum": lambda x: np.sum(x, axis=0, keepdims=True),
    "where": lambda x: np.where(x > 0, x, 0.0),
    "stack": lambda x: np.stack([x, 2 * x], axis=1),
    "concatenate": lambda x: np.concatenate([x, x]),
    "isnan": lambda x: np.isnan(x),
    "maximum": lambda x: np.maximum(x, 0.5),
    "subtract": lambda x: np.subtract(x, 1.0),
    "std": lambda x: np.std(x, axis=1, ddof=1),
    "clip": lambda x: np.clip(x, -0.5, 0.5),
    "inv": lambda x: np.linalg.inv(np.dot(x, x.T)),
    "an array first": lambda x: np.ones(3) * x - np.float64(2.0) * x + np.zeros(3),
    "comparison": lambda x: (np.zeros(3) < x) * np.ndim(x),
}


@pytest.mark.parametrize("f", OF_NUMPY.values(), ids=OF_NUMPY)
def test_functions_of_numpy_on_a_variable(f):
    """They are PyTensor's while a function of variables runs, and at no other time."""
    x = np.random.default_rng(0).normal(size=(2, 3))
    np.testing.assert_allclose(jaxify(f, loops="xla")(x), f(x), rtol=1e-12)
    rows = loopax.map(lambda row: np.dot(row, np.cumsum(row)), pt.as_tensor(x))
    np.testing.assert_allclose(rows.eval(), [np.dot(r, np.cumsum(r)) for r in x])
    assert not hasattr(pt.TensorVariable, "__array_function__")


def test_functions_of_scipy_on_a_variable():
    """The functions with one name in both libraries have one meaning."""
    names = [
        name
        for name, ufunc in vars(scipy.special).items()
        if isinstance(ufunc, np.ufunc) and ufunc in _UFUNCS
    ]
    assert {"gammaln", "expit", "erf", "psi", "betainc"} <= {*names}
    points = np.random.default_rng(0).uniform(0.2, 0.8, size=(4, 3))
    for name in names:
        ufunc = getattr(scipy.special, name)
        args = points[: ufunc.nin]
        if name in ("kn", "jn"):  # of integer order
            args = np.ones(3), *args[1:]
        f = jaxify(lambda *xs, ufunc=ufunc: ufunc(*xs), backend="numba")
        np.testing.assert_allclose(f(*args), ufunc(*args), rtol=1e-7, err_msg=name)


def test_a_loop_over_arrays_of_jax():
    """A loop is a graph; the mistake of who takes `loopax.scan` for `jax.lax.scan`."""
    for traced in (jax.jit, jax.grad):
        with pytest.raises(LoopTypeError, match=r"xs is traced by JAX.*@loopax\.jaxify"):
            traced(lambda xs: loopax.scan(lambda c, x: (c + x, None), 0.0, xs)[0])(jnp.ones(3))


def test_arguments_of_pytensor_scan():
    step = lambda x, c: c + x  # noqa: E731
    for given, message in (
        ({"fn": step, "sequences": [X]}, r"'fn': the step comes first.*scan\(step, init, xs\)"),
        ({"init": 0.0, "xs": X, "n_steps": 3}, r"'n_steps': it is called length"),
    ):
        with pytest.raises(TypeError, match=message):
            loopax.scan(**given)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'init'"):
        loopax.scan(step)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (
            lambda: loopax.scan(X, 0.0, X),
            r"step of scan\(step, init, xs\) must be a function, got x of",
        ),
        (lambda: loopax.cond(X[0] > 0, X, -X), r"true_fn of cond.*pt\.switch\(pred, a, b\)"),
        (
            lambda: loopax.fori_loop(lambda i, c: c, 0, 3, 0.0),
            r"body of fori_loop.*body\(i, carry\)",
        ),
        (lambda: loopax.while_loop(True, lambda c: c, 1), r"cond of while_loop.*cond\(carry\)"),
        (lambda: loopax.from_jax(3), r"f of loopax\.from_jax\(f\) must be a function, got 3"),
    ],
)
def test_values_in_the_place_of_functions(use, message):
    with pytest.raises(LoopTypeError, match=message):
        use()


def test_functions_and_variables_mixed_up():
    f = jaxify([X], X.sum())
    with pytest.raises(AttributeError, match=r"loopax\.grad\(f\).*pytensor\.grad\(y, x\)"):
        pytensor.grad(f, X)
    assert not hasattr(f, "type") and not hasattr(f, "nothing")
    for transform in (loopax.grad, loopax.value_and_grad, loopax.vmap):
        with pytest.raises(TypeError, match=f"loopax.{transform.__name__} takes a function"):
            transform(X.sum())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "JAX"}, "backend='jax' or 'numba'.*mode='LOOPAX'"),
        ({"inputs": [X]}, r"jaxify\(\[x, y\], outputs\)"),
        ({"static_argnums": 0}, "at the first call"),
        (
            {"speed": 3},
            "no option 'speed': it has outputs, .*loops, parallel, optimize, .*broadcasting, name",
        ),
    ],
)
def test_options_that_there_are_not(options, message):
    with pytest.raises(TypeError, match=message):
        jaxify([X], X.sum(), **options)
    with pytest.raises(TypeError, match=message):
        jaxify(**options)


def test_no_outputs():
    for given in ([X], X.sum(), None):
        with pytest.raises(TypeError, match=r"jaxify\(\[x\], y\)"):
            jaxify(given)


def test_doctor(capsys, monkeypatch):
    monkeypatch.setenv("JAX_SOMETHING", "in the report")
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    for words in (
        "loopax ",
        loopax.__version__,
        "precision",
        "native code kept in",
        "in the report",
    ):
        assert words in said
    assert said.count("right, ") == len(doctor._CHECKS) and "FAILED" not in said


def test_doctor_says_what_fails(capsys, monkeypatch):
    def fails():
        raise OSError("no tool-chain")

    monkeypatch.setattr(doctor, "_CHECKS", {"first": fails, "second": lambda: None})
    assert doctor.main() == 1
    said = capsys.readouterr()
    assert "FAILED: OSError: no tool-chain" in said.out and "second" in said.out
    assert "report" in said.err


def test_what_a_wrong_result_is_called(monkeypatch):
    monkeypatch.setattr(doctor, "_X", np.array([0.1, 0.2]))
    with pytest.raises(AssertionError):
        doctor._agrees([0.0, np.zeros(2)])


@pytest.mark.slow
def test_pymc_says_what_to_install():
    code = "import sys; sys.modules['pymc'] = None\nimport loopax\nloopax.pymc"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'loopax[pymc]'" in run.stderr and "ImportError" in run.stderr


@pytest.mark.parametrize("backend", ["jax", "numba"])
def test_a_decorator_with_options(backend):
    @jaxify(backend=backend, name="named")
    def total(x):
        return (x**2).sum()

    assert total(np.arange(3.0)) == 5.0
    assert total.backend.name == backend and "named" in repr(total)


def test_outputs_without_inputs():
    with pytest.raises(TypeError, match=r"jaxify\(\[x, y\], outputs\)"):
        jaxify(outputs=pt.dvector("x").sum())


def test_the_commands_version_and_clear_cache(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("LOOPAX_CACHE_DIR", str(tmp_path))
    with pytest.raises(SystemExit) as done:
        main(["--version"])
    assert done.value.code == 0
    assert capsys.readouterr().out == f"loopax {loopax.__version__}\n"
    for _ in range(2):
        assert main(["clear-cache"]) == 0
        assert capsys.readouterr().out.endswith(" files removed\n")
