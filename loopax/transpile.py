"""`jaxify`: what it takes, read into a program, and the backend that is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from pytensor.compile.executor import Function
from pytensor.graph.fg import FunctionGraph

from loopax import frontend
from loopax.base.extensions import required
from loopax.builders import Builder, PytreeBuilder
from loopax.calling import DEFAULT, ProgramFunction, TracedFunction, backend_named
from loopax.ir.program import Program
from loopax.options import donated_inputs, refuse_options

if TYPE_CHECKING:
    from loopax.calling import TracedFunction
    from loopax.jax_backend import JaxFunction, JaxTracedFunction
    from loopax.numba_backend import NumbaFunction
    from loopax.options import (
        BackendName,
        BuildOptions,
        Decorator,
        Inputs,
        JaxDecorator,
        M,
        Model,
        Options,
        P,
    )
    from loopax.pymc.log_density import LogDensity

_BROADCASTING = "strict", "numpy"
_NOTHING: Any = object()  # no function yet: what is made is a decorator


# What a type checker sees; see `loopax.options`.
@overload
def jaxify(
    fn: Inputs | Function | FunctionGraph,
    outputs: Any = None,
    *,
    updates: Any = None,
    givens: Any = None,
    backend: Literal["jax"] = "jax",
    **options: Unpack[Options],
) -> JaxFunction: ...
@overload
def jaxify(
    fn: Inputs | Function | FunctionGraph,
    outputs: Any = None,
    *,
    updates: Any = None,
    givens: Any = None,
    backend: Literal["numba"],
    **options: Unpack[Options],
) -> NumbaFunction: ...
@overload
def jaxify(
    fn: Model, *, backend: BackendName = "jax", **options: Unpack[BuildOptions]
) -> LogDensity: ...
@overload
def jaxify(fn: M, *, backend: BackendName = "jax", **options: Unpack[Options]) -> M: ...
@overload
def jaxify(
    fn: Callable[P, Any], *, backend: Literal["jax"] = "jax", **options: Unpack[Options]
) -> JaxTracedFunction[P]: ...
@overload
def jaxify(
    fn: Callable[P, Any], *, backend: Literal["numba"], **options: Unpack[Options]
) -> TracedFunction[P]: ...
@overload
def jaxify(*, backend: Literal["jax"] = "jax", **options: Unpack[Options]) -> JaxDecorator: ...
@overload
def jaxify(*, backend: Literal["numba"], **options: Unpack[Options]) -> Decorator: ...
def jaxify(
    fn: Any = _NOTHING,
    outputs: Any = None,
    *,
    updates: Any = None,
    givens: Any = None,
    backend: str = DEFAULT,
    jit: bool = True,
    on_missing: str = "callback",
    checks: str | None = None,
    loops: str | None = None,
    parallel: Any = "auto",
    optimize: str | None = None,
    donate: Any = None,
    static_argnames: Any = (),
    broadcasting: str = "strict",
    name: str | None = None,
    **unknown: Any,
) -> Any:
    """Turn a PyTensor program into a pure callable: of JAX, or of native code.

    Parameters
    ----------
    fn
        One of: a list of input variables (or ``In``, or pytrees of variables, which the callable takes as
        such), followed by ``outputs``; a plain Python function of PyTensor variables, traced on its first
        call for each structure, dtype and rank, in a class a method, which is traced anew where what its
        instance holds has changed; a compiled ``pytensor.function``, read as its mode's rewrites left it; a
        ``FunctionGraph``; a PyMC model, of which it gives the log-density, as `loopax.pymc.logp` does; what
        `jaxify` has returned, which is built anew with the options of this call.
        Without it, and without ``outputs``, `jaxify` is a decorator: ``@jaxify(backend="numba")``.
    outputs
        With a list of inputs: one variable, or a list, tuple or dict of them, nested as you like. The
        callable returns arrays in the same structure.
    updates, givens
        As ``pytensor.function`` takes them, with a list of inputs.
    backend
        ``"jax"``: a `JaxFunction`, which JAX's transformations take. ``"numba"``: a `NumbaFunction`, one
        native function on the CPU, compiled at its first call.
    jit
        In JAX, whether a direct call is compiled. Inside a ``jax.jit`` of yours it makes no difference.
    on_missing
        ``"callback"`` runs an Op without a conversion to the backend through its ``perform``, with
        one warning that names it; ``"raise"`` refuses it.
    checks
        What becomes of an ``Assert`` or ``CheckAndRaise`` that is about values which JAX only knows when
        the program runs. ``"auto"``, the default: of a direct call its exception is raised; under a
        transformation of yours it is as with ``"checkify"``: ``jax.experimental.checkify`` sees it, and
        it is skipped without, with one warning; that costs nothing. ``"raise"``: its exception is raised,
        at a direct call as it is, under a transformation of yours as one of JAX that has its message in it.
        ``"ignore"``: it is left out. ``"nan"``: as ``"raise"``, and a `NonFiniteError` is raised where a
        state, a row of a trace or an output is nan or infinite. In native code a check that is not ignored
        raises, and with ``backend="numba"`` there are ``"raise"``, the default, and ``"nan"``.
    loops
        In JAX, what a program of arrays runs as on the CPU. ``"xla"``: JAX's operations, with its loops as
        ``lax.scan`` and ``lax.while_loop``. ``"native"``: one call of native code, compiled by Numba, which
        JAX's transformations take all the same. ``"auto"``, the default: native where there are loops whose
        steps are small, so that it is faster, and no check that only ``checkify`` is to see. On other
        platforms, where the function is exported, and where nothing native is known for an op, it is JAX's
        operations whatever is asked for. The environment's ``LOOPAX_LOOPS`` is another default.
    parallel
        In JAX, whether a loop whose step is affine in the states (autoregressions, smoothing, the variance
        of a GARCH model, linear state spaces, discounted sums) takes all its steps at once, in blocks; so
        do its derivatives. ``"auto"``, the default: on an accelerator, where it is long and its states are
        few; on a CPU the steps are faster one by one, and nothing changes. ``True``: wherever a part of a
        loop is affine, or linear with ``logsumexp``, ``max`` or ``min`` in the place of sums, as forward
        passes of hidden Markov models and Viterbi's algorithm are, normalised or not; nothing of the
        program is then native code. ``False``: never. `loopax.explain` says
        which, after a call; with ``True`` a loop that cannot warns. In native code the steps are taken one
        by one, whatever is asked for.
    optimize
        ``"none"``, the default, or ``"egraph"``: equations of algebra, indexing and linear algebra are
        used in all orders at once, and the cheapest of all equal programs is taken. Values may differ
        in their last digits. It needs the package egglog: ``pip install 'loopax[egraph]'``.
    donate
        In JAX, the inputs that a direct call gives away, as ``donate_argnums`` of ``jax.jit`` does: their
        memory may be used for results, and arrays of JAX whose memory is are deleted. One input or
        several, each a variable, a name or a number; of an argument that is a pytree all leaves. Arguments
        that are converted are not touched, nor are NumPy's. Under a transformation of yours, ``jax.grad``
        and ``jax.vmap`` too, nothing is given away: what is, says the outermost ``jax.jit``,
        ``jax.jit(f, donate_argnums=0)``, which is where to ask for the values of shared variables, too:
        ``jax.jit(f.apply, donate_argnums=0)``.
    static_argnames
        With a Python function: the names of arguments that are values to it, words or numbers that choose
        what is computed, as ``jax.jit`` has them. It is traced once for each.
    broadcasting
        Which axes of length 1 are broadcast. ``"strict"``, the default: those that a type declares, as
        PyTensor has it, in all ops of both backends. ``"numpy"``, with a list of inputs and outputs: those
        of arguments as well, which are declared for each call as its arguments have them; the program is
        made anew for each pattern.
    name
        The ``__name__`` of the callable.

    Raises
    ------
    UnsupportedOpError
        The program has ops that the backend cannot run; all of them are listed.
    MissingInputError
        The outputs need variables that are not inputs, or ``donate`` has something that is no input.
    ImportError
        ``optimize="egraph"`` without egglog; or an extension of loopax is not in this installation.
    TypeError
        ``fn`` is none of the above, or there is no such option.
    ValueError
        An option has another value than those above, or ``donate`` is asked of a backend or with an option
        that has nothing to give away.

    Examples
    --------
    >>> import jax, pytensor.tensor as pt
    >>> from loopax import jaxify
    >>> x = pt.dvector("x")
    >>> f = jaxify([x], (x**2).sum())
    >>> f([1.0, 2.0]), jax.grad(f)(jax.numpy.array([1.0, 2.0]))
    (Array(5., dtype=float64), Array([2., 4.], dtype=float64))
    >>> jaxify([x], (x**2).sum(), backend="numba")([1.0, 2.0])
    array(5.)
    """
    refuse_options(unknown, _OPTIONS)
    if broadcasting not in _BROADCASTING:
        raise ValueError(f"broadcasting must be one of {_BROADCASTING}, got {broadcasting!r}")
    parallels = backend_named(DEFAULT).choices["parallel"]  # in native code all are one
    if parallel not in parallels:
        raise ValueError(f"parallel must be one of {parallels}, got {parallel!r}")
    if parallel is True:
        required("parallel", "parallel=True", "parallel='auto', the default")
    choices: dict[str, Any] = {
        "checks": checks,
        "loops": loops,
        "parallel": parallel,
        "optimize": optimize,
    }
    if fn is _NOTHING or isinstance(fn, classmethod | staticmethod):
        options = {"jit": jit, "on_missing": on_missing, "donate": donate, **choices}
        options |= {"broadcasting": broadcasting, "static_argnames": static_argnames, "name": name}
        decorator = partial(jaxify, backend=backend, **options)
        if fn is not _NOTHING:  # which then binds what is made of its function
            return type(fn)(decorator(fn.__func__))
        if not (outputs is updates is givens is None):
            raise TypeError("The inputs come first, and then the outputs: jaxify([x, y], outputs).")
        return decorator
    donated = donated_inputs(fn, donate, backend, jit)
    if is_pymc_model(fn):
        others = outputs is updates is givens is name is None and not static_argnames
        if not others or broadcasting != "strict" or donated:
            raise TypeError(
                "jaxify(model) gives the log-density of a PyMC model, and takes no outputs, updates, "
                "givens, donate, static_argnames, broadcasting or name. For other variables: "
                "jaxify(model.value_vars, outputs)."
            )
        options = {"jit": jit, "on_missing": on_missing, **choices}
        return import_module("loopax.pymc").logp(fn, backend=backend, **options)
    chosen = backend_named(backend)
    build = Builder(chosen, chosen.options(jit, on_missing, **choices), donated)
    if isinstance(fn, TracedFunction | ProgramFunction) and outputs is updates is givens is None:
        return _built_anew(fn, build, static_argnames, name)
    is_graph = isinstance(fn, Function | FunctionGraph)
    if callable(fn) and not is_graph and outputs is updates is givens is None:
        frontend.arguments_of(fn, donated)  # raises
        if static := frontend.static_names(fn, static_argnames):
            build = Builder(chosen, build.options, donated, static)
            return chosen.traced(frontend.with_open_arguments(fn), build, name)
        return chosen.traced(fn, build, name)  # for the lengths of 1 that its arguments have
    if static_argnames:
        raise TypeError(
            f"static_argnames={static_argnames!r} goes with a Python function, which sees values: inputs "
            "of a graph whose values make a shape are found at the first call. Leave it out."
        )
    if broadcasting == "numpy":
        pytrees = not is_graph and frontend.has_pytrees(fn)
        if is_graph or pytrees or outputs is None or not (updates is givens is None):
            raise TypeError(
                "broadcasting='numpy' goes with inputs and outputs, jaxify([x, y], outputs), without "
                "pytrees of inputs, updates and givens: a compiled function and a graph are rewritten for "
                "the types that they have. Declare an axis with pt.specify_broadcastable(x, axis)."
            )
        declared_lengths = frontend.with_declared_lengths(fn, outputs, name)
        frontend.arguments_of(declared_lengths, donated)
        return chosen.traced(declared_lengths, build, name)
    if not is_graph and frontend.has_pytrees(fn):
        declared = frontend.PytreeInputs(fn, outputs, updates, givens, name)
        frontend.arguments_of(declared, donated)
        return PytreeBuilder.function(build, declared)
    return build(frontend.donating(read(fn, outputs, updates, givens, name), donated))


def _built_anew(fn: Any, build: Builder, static_argnames: Any, name: str | None) -> Any:
    """What ``build`` makes of the program of ``fn``, which `jaxify` has returned."""
    if isinstance(fn, TracedFunction):
        frontend.arguments_of(fn, build.donate)  # raises
        own: Any = fn.build
        build = replace(
            own,
            backend=build.backend,
            options=build.options,
            donate=build.donate,
            static=frontend.static_names(fn, static_argnames) or own.static,
        )
        return build.backend.traced(fn.__wrapped__, build, name or fn.__name__)
    if fn.program.as_read is None:
        fn.as_read()  # says why there is nothing to build anew
    program = replace(fn.program.with_watches(), name=name or fn.__name__)
    return build(frontend.donating(program, build.donate))


def is_pymc_model(fn: Any) -> bool:
    """Whether ``fn`` is a model, without importing PyMC."""
    names = {"Model", "BaseModel"}
    return any(
        c.__name__ in names and c.__module__.startswith("pymc.model") for c in type(fn).__mro__
    )


def read(
    fn: Any, outputs: Any = None, updates: Any = None, givens: Any = None, name: str | None = None
) -> Program:
    """The `Program` of what `jaxify` takes, but for a Python function, which needs arguments."""
    program = _read(fn, outputs, updates, givens, name)
    frontend.warn_of_equal_draws(program)
    frontend.warn_of_wrong_gradients(program.graph.apply_nodes)
    return program


def _read(fn: Any, outputs: Any, updates: Any, givens: Any, name: str | None) -> Program:
    if isinstance(fn, Function | FunctionGraph) or (callable(fn) and outputs is None):
        if outputs is not None or updates is not None or givens is not None:
            raise TypeError(
                "outputs, updates and givens go with a list of input variables: jaxify([x], y). "
                f"A {type(fn).__name__} has its own."
            )
        program = (
            frontend.read_function(fn) if isinstance(fn, Function) else frontend.read_graph(fn)
        )
        program.name = name or program.name
        return program
    if outputs is None and updates is None:
        raise TypeError(
            f"jaxify takes a list of inputs followed by outputs, a function, a compiled "
            f"pytensor.function, a FunctionGraph or a PyMC model; got {fn!r} of type {type(fn).__name__} "
            "without outputs. For the variable y as a function of x: jaxify([x], y)."
        )
    # A function of updates alone returns [], as PyTensor's does.
    outputs = [] if outputs is None else outputs
    return frontend.read_variables(fn, outputs, updates, givens, name)


_OPTIONS = tuple(signature(jaxify).parameters)[1:-1]
