"""The ways through loopax, and what each of them must agree with."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import jax
import numpy as np
import pytensor

import loopax
from loopax import PaddedArray, jaxify
from loopax.base.extensions import installed_extensions
from loopax.ir.replace import replaced
from loopax.ir.sequences import with_items
from tests.jax_backend.interpreted import InterpretedFunction as InterpretedJax
from tests.jax_backend.interpreted import interpreted
from tests.numba_backend.interpreted import InterpretedFunction as InterpretedNumba
from tests.numba_backend.interpreted import SizedFunction as SizedNumba
from tests.random_programs.answers import Answer, NotAProgram
from tests.random_programs.oracles import Case
from tests.random_programs.plain import PLAIN
from tests.random_programs.verdicts import ROUTES, route


def _dtypes(variables: list[Any]) -> list[str]:
    return [v.type.dtype for v in variables]


def _static(case: Case) -> tuple[int, ...]:
    return tuple(k for k, x in enumerate(case.program.given) if x.makes_shapes)


def _arguments(case: Case) -> list[Any]:
    """Numbers that make shapes are Python's: a foreign jit has to hash them."""
    return [
        v.item() if x.makes_shapes else v
        for x, v in zip(case.program.given, case.values, strict=True)
    ]


def _arrays(actual: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in actual]


__all__ = ["ROUTES"]


# -- in each backend ---------------------------------------------------------------------------------
#
# As Python what JAX has traced, or what the emitter has written for Numba, is run without compiling it.

JAX, JAX_AS_PYTHON = "jax", InterpretedJax.backend_name
NUMBA, NUMBA_AS_PYTHON = "numba", InterpretedNumba.backend_name
NATIVE = "native jax"  # native code inside of JAX
NATIVE_AS_PYTHON = "native jax as Python"
BACKENDS = JAX, JAX_AS_PYTHON, NUMBA, NUMBA_AS_PYTHON
# JAX's operations alone, which have the rules of arrays whose length only the run tells.
XLA = "xla jax"
IN_JAX = JAX, JAX_AS_PYTHON, NATIVE, NATIVE_AS_PYTHON, XLA


def _jaxified(case: Case, backend: str, what: str, outputs: Callable[[], Any]) -> Any:
    def make() -> Any:
        name, options = backend, {}
        if backend == NUMBA_AS_PYTHON and case.program.seed % 2:
            name = SizedNumba.backend_name
        if backend == JAX_AS_PYTHON:
            options = {"jit": False, "loops": "xla"}
        if backend in (NATIVE, NATIVE_AS_PYTHON):  # with ``jit=False`` there is no native code
            name, options = JAX, {"loops": "native"}
        if backend == XLA:
            name, options = JAX, {"loops": "xla"}
        return jaxify(case.written.inputs, outputs(), backend=name, **options)

    return case.function(f"{what} in {backend}", make)


def _value(case: Case, backend: str) -> Any:
    return _jaxified(case, backend, "value", lambda: case.written.outputs)


def _cost(case: Case, backend: str) -> Any:
    return _jaxified(case, backend, "cost", lambda: case.cost(case.written))


def _called(f: Any, *args: Any) -> Any:
    """``f(*args)`` as Python: nothing to compare where it calls what is native code only."""
    try:
        return f(*args)
    except NotImplementedError as error:
        if "pure-python" not in str(error):
            raise
        raise NotAProgram("an intrinsic of Numba's") from error
    except (
        OverflowError,
        ZeroDivisionError,
    ) as error:  # NumPy's and Numba's integers and floats go on
        raise NotAProgram("numbers of Python") from error
    except ValueError as error:  # of Python's `math`, where native code gives infinities and nan
        if "math domain error" not in str(error):
            raise
        raise NotAProgram("a function of Python's math") from error


def _of_floats(case: Case) -> list[str]:
    return [str(case.values[k].dtype) for k in case.wrt]


def _gradient_of_pytensor(case: Case) -> Answer:
    """What PyTensor's pullbacks give of the program, its loops included."""
    if "reference" in case.gradient.refused:
        raise NotAProgram(case.gradient.refused["reference"])
    return case.gradient


def _in_each(name: str, backends: tuple[str, ...]) -> Callable[[Any], Any]:
    """Registers a route for each backend; ``name`` has a place for it."""

    def register(run: Callable[[Case, str], Any]) -> Any:
        for backend in backends:
            route(name.format(backend))(partial(run, backend=backend))
        return run

    return register


@_in_each("{}", (*BACKENDS, NATIVE))
def values(case: Case, backend: str) -> Any:
    answer = case.outputs
    actual = _called(_value(case, backend), *case.values)
    return _arrays(actual), answer, _dtypes(case.written.outputs)


@route("egraph in numba as Python")
def values_by_egraph(case: Case) -> Any:
    actual = _called(_by_egraph(case, "value", case.written.outputs), *case.values)
    return _arrays(actual), case.outputs, _dtypes(case.written.outputs)


@route("pytensor.grad by egraph in numba as Python")
def gradients_by_egraph(case: Case) -> Any:
    answer, gradients = _gradient_of_pytensor(case), case.written_gradients
    f = _by_egraph(case, "gradient", gradients)
    return _arrays(_called(f, *case.values)), answer, _dtypes(gradients)


def _by_egraph(case: Case, what: str, outputs: Any) -> Any:
    if "egraph" not in installed_extensions() or find_spec("egglog") is None:
        raise NotAProgram("egglog is in the egraph extra")
    options = {"backend": NUMBA_AS_PYTHON, "optimize": "egraph"}
    return case.function(
        f"{what} by egraph", lambda: jaxify(case.written.inputs, outputs, **options)
    )


@_in_each("pytensor.grad in {}", BACKENDS)
def pytensor_grad(case: Case, backend: str) -> Any:
    answer, gradients = _gradient_of_pytensor(case), case.written_gradients
    f = _jaxified(case, backend, "gradient", lambda: gradients)
    return _arrays(_called(f, *case.values)), answer, _dtypes(gradients)


@_in_each("loopax.grad in {}", (NUMBA, NUMBA_AS_PYTHON))
def grad_of_the_graph(case: Case, backend: str) -> Any:
    answer = _gradient_of_pytensor(case)
    f = loopax.grad(_cost(case, backend), argnums=tuple(case.wrt))
    return _arrays(_called(f, *case.values)), answer, _of_floats(case)


@_in_each("lazy loopax.grad in {}", (JAX_AS_PYTHON, NUMBA_AS_PYTHON))
def lazy_grad(case: Case, backend: str) -> Any:
    """Taken by the passes, of what PyTensor's rewrites leave of the program."""
    answer, wrt = _gradient_of_pytensor(case), [case.written.inputs[k] for k in case.wrt]

    def cost(*given: Any) -> Any:
        return replaced([case.cost(case.written)], dict(zip(wrt, given, strict=True)))[0]

    def gradients() -> Any:
        return list(loopax.grad(cost, tuple(range(len(wrt))), lazy=True)(*wrt))

    f = _jaxified(case, backend, "lazy gradient", gradients)
    return _arrays(_called(f, *case.values)), answer, _of_floats(case)


@_in_each("loopax.vmap in {}", (NUMBA, NUMBA_AS_PYTHON))
def vmap_of_the_graph(case: Case, backend: str) -> Any:
    def vectorized(axes: tuple[Any, ...]) -> Any:
        return partial(_called, loopax.vmap(_value(case, backend), in_axes=axes))

    return _batched(case, vectorized)


@_in_each("updates in {}", BACKENDS)
def updates(case: Case, backend: str) -> Any:
    g, answer = case.written, case.after
    if not g.updates:
        raise NotAProgram("no updates")
    try:
        pytensor.function(
            g.inputs, g.outputs, updates=g.updates, mode=PLAIN, on_unused_input="ignore"
        )
    except Exception as error:
        raise NotAProgram(f"PyTensor refuses it: {error}") from error
    options = {"jit": False} if backend == JAX_AS_PYTHON else {}
    f = jaxify(g.inputs, g.outputs, updates=g.updates, backend=backend, **options)
    ctx, actual = _called(f.apply, f.init_context(), *case.values)
    names = [s.name for s in g.updates]
    actual = [*actual, *(ctx[n] for n in names)]
    return _arrays(actual), answer, _dtypes([*g.outputs, *g.updates.values()])


# -- JAX's own transformations, and what they are of -------------------------------------------------


def _transformed(backend: str, f: Callable[..., Any]) -> Callable[..., Any]:
    """``f``, a function that JAX may trace: as Python traced, and then run."""
    return partial(_called, interpreted(f)) if backend.endswith("as Python") else f


@_in_each("jit of {}", IN_JAX)
def under_jit(case: Case, backend: str) -> Any:
    answer, f, args = case.outputs, _value(case, backend), _arguments(case)
    traced = [k for k in range(len(args)) if k not in _static(case)]

    def of(*some: Any) -> Any:
        return f(*with_items(args, traced, some))

    run = _transformed(backend, of) if backend.endswith("as Python") else jax.jit(of)
    actual = run(*[case.values[k] for k in traced])
    return _arrays(actual), answer, _dtypes(case.written.outputs)


@_in_each("jax.grad of {}", IN_JAX)
def grad_by_jax(case: Case, backend: str) -> Any:
    answer, args = case.gradient, _arguments(case)
    gradient = jax.grad(_cost(case, backend), argnums=tuple(case.wrt))

    def of(*some: Any) -> Any:
        return gradient(*with_items(args, case.wrt, some))

    actual = _transformed(backend, of)(*[args[k] for k in case.wrt])
    return _arrays(actual), answer, _of_floats(case)


def _cost_of_floats(case: Case, backend: str) -> Callable[..., Any]:
    """The cost as a function of the float arguments alone."""
    args, f = _arguments(case), _cost(case, backend)
    return lambda *floats: f(*with_items(args, case.wrt, floats))


# Derivatives of derivatives are taken a little away from kinks and ends, where each rule has its own.


@_in_each("jax.jvp of {}", IN_JAX)
def jvp_by_jax(case: Case, backend: str) -> Any:
    near = case.nearby
    answer = near.pushforward  # first: what PyTensor refuses is no program
    f, primals = _cost_of_floats(near, backend), [_arguments(near)[k] for k in near.wrt]

    def tangent(primals: Any, tangents: Any) -> Any:
        return jax.jvp(f, tuple(primals), tuple(tangents))[1]

    moved = _transformed(backend, tangent)(primals, near.direction)
    return _arrays([moved]), answer, ["float64"]


@_in_each("jax.jvp of jax.grad of {}", IN_JAX)
def forward_over_reverse(case: Case, backend: str) -> Any:
    near = case.nearby
    answer = near.hessian_product
    gradient = jax.grad(_cost_of_floats(near, backend), argnums=tuple(range(len(near.wrt))))

    def product(primals: Any, tangents: Any) -> Any:
        return jax.jvp(gradient, tuple(primals), tuple(tangents))[1]

    primals = [_arguments(near)[k] for k in near.wrt]
    products = _transformed(backend, product)(primals, near.direction)
    return _arrays(products), answer, _of_floats(near)


@_in_each("jax.grad of jax.jvp of {}", IN_JAX)
def reverse_over_forward(case: Case, backend: str) -> Any:
    near = case.nearby
    answer = near.hessian_product
    f = _cost_of_floats(near, backend)

    def product(primals: Any, tangents: Any) -> Any:
        def along(*floats: Any) -> Any:
            return jax.jvp(f, floats, tuple(tangents))[1]

        return jax.grad(along, argnums=tuple(range(len(primals))))(*primals)

    primals = [_arguments(near)[k] for k in near.wrt]
    products = _transformed(backend, product)(primals, near.direction)
    return _arrays(products), answer, _of_floats(near)


def _near_of_pytensor(case: Case) -> Case:
    """The program a little away, where PyTensor has a gradient of it with its loops."""
    _gradient_of_pytensor(case.nearby)
    return case.nearby


def _primals_and_tangents(case: Case) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    tangents = with_items([None] * len(case.values), case.wrt, case.direction)
    return tuple(case.values), tuple(tangents)


@_in_each("loopax.jvp in {}", (NUMBA, NUMBA_AS_PYTHON))
def jvp_of_the_graph(case: Case, backend: str) -> Any:
    near = _near_of_pytensor(case)
    primals, tangents = _primals_and_tangents(near)
    _, moved = _called(partial(loopax.jvp, _cost(near, backend)), primals, tangents)
    return _arrays([moved]), near.pushforward, ["float64"]


@_in_each("loopax.hvp in {}", (NUMBA, NUMBA_AS_PYTHON))
def hvp_of_the_graph(case: Case, backend: str) -> Any:
    near = _near_of_pytensor(case)
    primals, tangents = _primals_and_tangents(near)
    products = _called(partial(loopax.hvp, _cost(near, backend)), primals, tangents)
    products = products if isinstance(products, tuple) else (products,)
    return _arrays(products), near.hessian_product, _of_floats(near)


@_in_each("loopax.grad of loopax.jvp in {}", (JAX_AS_PYTHON, NUMBA_AS_PYTHON))
def reverse_over_forward_of_the_graph(case: Case, backend: str) -> Any:
    near = _near_of_pytensor(case)
    wrt = [near.written.inputs[k] for k in near.wrt]

    def cost(*floats: Any) -> Any:
        return replaced([near.cost(near.written)], dict(zip(wrt, floats, strict=True)))[0]

    def products() -> Any:
        def along(*floats: Any) -> Any:
            return loopax.jvp(cost, floats, tuple(near.direction))[1]

        return list(loopax.grad(along, tuple(range(len(wrt))))(*wrt))

    f = _jaxified(near, backend, "reverse over forward", products)
    return _arrays(_called(f, *near.values)), near.hessian_product, _of_floats(near)


@_in_each("jax.vmap of {}", IN_JAX)
def vmap_by_jax(case: Case, backend: str) -> Any:
    f = _value(case, backend)

    def members(x: Any) -> Any:
        """Of the traces of loops that stop, one for each row."""
        rows = range(len(case.rows))
        return (
            np.stack([np.asarray(x.member(k)) for k in rows]) if isinstance(x, PaddedArray) else x
        )

    def vectorized(axes: tuple[Any, ...]) -> Any:
        batch = jax.vmap(f, in_axes=axes)
        rows = [k for k, axis in enumerate(axes) if axis == 0]

        def run(*args: Any) -> Any:
            def of(*some: Any) -> Any:
                return batch(*with_items(list(args), rows, some))

            return [members(x) for x in _transformed(backend, of)(*[args[k] for k in rows])]

        return run

    return _batched(case, vectorized)


@_in_each("compiled function in {}", (JAX, JAX_AS_PYTHON))
def compiled_function(case: Case, backend: str) -> Any:
    answer, g = case.outputs, case.written
    options = {"jit": False} if backend == JAX_AS_PYTHON else {}
    try:
        f = pytensor.function(g.inputs, g.outputs, mode="FAST_COMPILE", on_unused_input="ignore")
    except Exception as error:
        raise NotAProgram(f"PyTensor refuses it: {error}") from error
    actual = jaxify(f, backend=backend, **options)(*case.values)
    return _arrays(actual), answer, _dtypes(g.outputs)


# -- batches -----------------------------------------------------------------------------------------


def _batched(case: Case, vectorized: Callable[[tuple[Any, ...]], Any]) -> Any:
    axes = tuple(None if x.makes_shapes else 0 for x in case.program.given)
    if not any(a == 0 for a in axes):
        raise NotAProgram("nothing to batch")
    answers = [row.outputs for row in case.rows]
    answer = Answer()
    answer.far = []
    try:
        for k in range(min(len(a.accepted) for a in answers)):
            columns = zip(*(a.accepted[k][1] for a in answers), strict=True)
            answer.add(answers[0].accepted[k][0], [np.stack(c) for c in columns])
        fars = [a.far or [np.full(x.shape, np.inf) for x in a.values] for a in answers]
        answer.far = [np.stack(c) for c in zip(*fars, strict=True)]
    except ValueError as error:
        raise NotAProgram(f"rows of several shapes: {error}") from error
    answer.finite_inside = all(a.finite_inside for a in answers)
    if all(a.rewritten is not None for a in answers):
        answer.rewritten = lambda: [
            np.stack(c) for c in zip(*(a.rewritten() for a in answers), strict=True)
        ]
    args = [
        np.stack([row.values[k] for row in case.rows]) if a == 0 else _arguments(case)[k]
        for k, a in enumerate(axes)
    ]
    return _arrays(vectorized(axes)(*args)), answer, _dtypes(case.written.outputs)


# -- PyTensor itself ---------------------------------------------------------------------------------


@route("PyTensor's oracles")
def the_oracles(case: Case) -> Any:
    """Whether they agree with one another."""
    fault = case.outputs.disagreement()
    if fault:
        return [], _Says(fault), None
    return [], _Says(None), None


@route("PyTensor's gradients")
def the_gradients(case: Case) -> Any:
    return [], _Says(case.gradient.disagreement()), None


@route("PyTensor's NUMBA mode")
def in_pytensor_numba(case: Case) -> Any:
    return case.by_numba(), case.outputs, _dtypes(case.written.outputs)


@dataclass
class _Says:
    said: str | None

    def fault(self, actual: Any, dtypes: Any) -> str | None:
        return self.said
