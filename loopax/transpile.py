"""The function `jaxify`: it reads its arguments as a program, and calls the requested backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    donated_inputs,
    is_pymc_model,
    refuse_options,
)

if TYPE_CHECKING:
    from loopax.jax_backend import JaxFunction, JaxTracedFunction
    from loopax.numba_backend import NumbaFunction
    from loopax.pymc.log_density import LogDensity

_BROADCASTING = "strict", "numpy"
_NOTHING: Any = object()  # there is no function yet: return a decorator


# Signatures for type checkers; see `loopax.options`.
@overload
def jaxify(
    fn: Inputs | Function | FunctionGraph,
    outputs: object = None,
    *,
    updates: frontend.Replacements | None = None,
    givens: frontend.Replacements | None = None,
    backend: Literal["jax"] = "jax",
    **options: Unpack[Options],
) -> JaxFunction: ...
@overload
def jaxify(
    fn: Inputs | Function | FunctionGraph,
    outputs: object = None,
    *,
    updates: frontend.Replacements | None = None,
    givens: frontend.Replacements | None = None,
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
    outputs: object = None,
    *,
    updates: frontend.Replacements | None = None,
    givens: frontend.Replacements | None = None,
    backend: str = DEFAULT,
    jit: bool = True,
    on_missing: str = "callback",
    checks: str | None = None,
    loops: str | None = None,
    parallel: bool | str = "auto",
    optimize: str | None = None,
    donate: frontend.Donate | None = None,
    static_argnames: str | Sequence[str] = (),
    broadcasting: str = "strict",
    name: str | None = None,
    **unknown: object,
) -> Any:
    """Turn a PyTensor program into a pure JAX function, or into native code.

    Parameters
    ----------
    fn
        The program, in one of six forms. A list of input variables (or ``In``, or pytrees of variables,
        which the callable takes in that structure), followed by ``outputs``. A plain Python function of
        PyTensor variables, traced on its first call for each structure, dtype and rank; in a class it
        is a method, traced again if the state of its instance has changed. A compiled
        ``pytensor.function``, of which the rewritten graph is read. A ``FunctionGraph``. A PyMC model,
        which gives its log-density, as by `loopax.pymc.logp`. A function that `jaxify` returned, which
        is built again with the options of this call. Without ``fn`` and ``outputs``, `jaxify` is a
        decorator: ``@jaxify(backend="numba")``.
    outputs
        With a list of inputs: one variable, or a list, tuple or dict of them, nested as you like. The
        callable returns arrays in the same structure.
    updates, givens
        As in ``pytensor.function``, with a list of inputs.
    backend
        ``"jax"``: a `JaxFunction`, which JAX's transformations take. ``"numba"``: a `NumbaFunction`, one
        native function on the CPU, compiled at its first call.
    jit
        In JAX, whether a direct call is compiled. Inside your own ``jax.jit`` it makes no difference.
    on_missing
        ``"callback"`` runs an Op without a conversion to the backend through its ``perform``, with
        one warning that names it; ``"raise"`` refuses it.
    checks
        The treatment of an ``Assert`` or ``CheckAndRaise`` on values known only when the program runs.
        ``"auto"``, the default: a direct call raises its exception; under your own transformation it
        acts as ``"checkify"``. ``"checkify"``: ``jax.experimental.checkify`` reports it; otherwise it
        is skipped, with one warning, and costs nothing. ``"raise"``: it raises its exception, under
        your own transformation as a JAX exception that contains its message. ``"ignore"``: it is left
        out. ``"nan"``: as ``"raise"``, and a `NonFiniteError` is raised if a state, a row of a trace or
        an output is NaN or infinite. In native code a check that is not ignored raises;
        ``backend="numba"`` accepts ``"raise"``, the default, and ``"nan"``.
    loops
        In JAX, the form of a program of arrays on the CPU. ``"xla"``: JAX's operations, with loops as
        ``lax.scan`` and ``lax.while_loop``. ``"native"``: one call of native code, compiled by Numba,
        which JAX's transformations take as well. ``"auto"``, the default: native if an estimate says
        that it is faster, as for loops with small steps, and no check is for ``checkify`` only. On
        other platforms, in exported functions, and for ops without native code, the form is always
        JAX's operations. The environment variable ``LOOPAX_LOOPS`` sets another default.
    parallel
        In JAX, whether a loop whose step is affine in the states (autoregressive models, smoothing, the
        variance of a GARCH model, linear state spaces, discounted sums) takes all its steps at once, in
        blocks; so do its derivatives. ``"auto"``, the default: on an accelerator, if the loop is long
        and has few states; on a CPU single steps are faster, and nothing changes. ``True``: wherever a
        part of a loop is affine, or linear with ``logsumexp``, ``max`` or ``min`` in place of sums,
        like forward passes of hidden Markov models and Viterbi's algorithm, normalized or not; the
        program then has no native code. ``False``: never. After a call `loopax.explain` says which
        loops ran in parallel; with ``True`` a loop that cannot gives a warning. Native code always
        takes the steps one by one.
    optimize
        ``"none"``, the default, or ``"egraph"``: apply equations of algebra, indexing and linear
        algebra in all orders at once, and take the cheapest of all equal programs. Values may differ in
        their last digits. It needs the package egglog: ``pip install 'loopax[egraph]'``.
    donate
        In JAX, the inputs that a direct call donates, like ``donate_argnums`` of ``jax.jit``: results
        may use their memory, and JAX arrays whose memory is used are deleted. One input or several,
        each a variable, a name or a number; for a pytree, all its leaves. Converted arguments and NumPy
        arrays are never affected. Under your own transformation, ``jax.grad`` and ``jax.vmap``
        included, nothing is donated: only the outermost ``jax.jit`` can donate, by
        ``jax.jit(f, donate_argnums=0)``, or ``jax.jit(f.apply, donate_argnums=0)`` for the values of
        shared variables.
    static_argnames
        With a Python function: the names of arguments that it uses as plain Python values, for example
        a string that selects a computation, as in ``jax.jit``. It is traced once for each value.
    broadcasting
        The axes of length 1 that are broadcast. ``"strict"``, the default: axes that a type declares,
        by PyTensor's rule, in all ops of both backends. ``"numpy"``, with a list of inputs and outputs:
        also axes of arguments that have length 1 in a call; the program is made once for each pattern
        of such axes.
    name
        The ``__name__`` of the callable.

    Raises
    ------
    UnsupportedOpError
        The program has ops that the backend cannot run; all of them are listed.
    MissingInputError
        The outputs need variables that are not inputs, or an entry of ``donate`` is not an input.
    ImportError
        ``optimize="egraph"`` without egglog; or an extension of loopax is not in this installation.
    TypeError
        ``fn`` has none of these forms, or an option does not exist.
    ValueError
        The value of an option is unknown, or ``donate`` is used with a backend or an option that does
        not donate.

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
    parallels = backend_named(DEFAULT).choices["parallel"]  # native code treats all alike
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
        if fn is not _NOTHING:  # the classmethod or staticmethod then binds the result
            return type(fn)(decorator(fn.__func__))
        if not (outputs is updates is givens is None):
            raise TypeError("Pass the inputs first, then the outputs: jaxify([x, y], outputs).")
        return decorator
    donated = donated_inputs(fn, donate, backend, jit)
    if is_pymc_model(fn):
        is_alone = all(x is None for x in (outputs, updates, givens, name)) and not static_argnames
        if not is_alone or broadcasting != "strict" or donated:
            raise TypeError(
                "jaxify(model) returns the log-density of a PyMC model, and takes no outputs, "
                "updates, givens, donate, static_argnames, broadcasting or name. For other variables, "
                "write jaxify(model.value_vars, outputs)."
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
        return chosen.traced(fn, build, name)  # for the length-1 axes that its arguments have
    if static_argnames:
        raise TypeError(
            f"static_argnames={static_argnames!r} works only with a Python function, which sees "
            "values. In a graph, loopax finds inputs whose values make a shape at the first call. "
            "Leave it out."
        )
    if broadcasting == "numpy":
        pytrees = not is_graph and frontend.has_pytrees(fn)
        if is_graph or pytrees or outputs is None or not (updates is givens is None):
            raise TypeError(
                "broadcasting='numpy' works only with inputs and outputs, jaxify([x, y], outputs), "
                "without pytrees of inputs, updates and givens: a compiled function and a graph keep "
                "their own types. Declare an axis with pt.specify_broadcastable(x, axis)."
            )
        declared_lengths = frontend.with_declared_lengths(fn, outputs, name)
        frontend.arguments_of(declared_lengths, donated)
        return chosen.traced(declared_lengths, build, name)
    if not is_graph and frontend.has_pytrees(fn):
        declared = frontend.PytreeInputs(fn, outputs, updates, givens, name)
        frontend.arguments_of(declared, donated)
        return PytreeBuilder.function(build, declared)
    program = frontend.read_program(fn, outputs, updates, givens, name)
    return build(frontend.donating(program, donated))


def _built_anew(
    fn: Any, build: Builder, static_argnames: str | Sequence[str], name: str | None
) -> Any:
    """Rebuild the program of ``fn``, which `jaxify` has returned, by ``build``."""
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
        fn.as_read()  # says why there is nothing to rebuild
    program = replace(fn.program.with_watches(), name=name or fn.__name__)
    return build(frontend.donating(program, build.donate))


_OPTIONS = tuple(signature(jaxify).parameters)[1:-1]
