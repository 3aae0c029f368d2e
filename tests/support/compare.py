"""The one comparison: a program's values in JAX against PyTensor and against the IR's own meaning.

`assert_agrees` compares values, dtypes, shapes and structure; `assert_trees_close` compares two results.
What a test adds is the program, and what the result is *made* of: `imported` gives the graph in the IR,
`primitives` counts what JAX runs.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytensor
from jax.extend.core import ClosedJaxpr, Jaxpr
from pytensor.compile.mode import Mode, get_mode
from pytensor.graph.basic import Apply, Variable

from loopax import jaxify
from loopax.frontend import read_variables
from loopax.importer.import_graph import import_graph
from loopax.ir import Scan, check, evaluate
from loopax.ir.ops.inner_graph_op import InnerGraphOp
from loopax.ir.program import Program
from loopax.lowering import lower

# In PyTensor 3.0 this rewrite is wrong where the other term of the sum is broadcast, or an index is
# repeated: gradients of `out[-1] + out.sum()` come out wrong in FAST_COMPILE. 3.3 mended it.
_WRONG = "local_add_of_sparse_write"
# The default mode is Numba's on both releases, and compiles for seconds: it has tests of its own.
FAST_COMPILE = get_mode("FAST_COMPILE").excluding(_WRONG)
# In `make test` there is no C compiler (tests/conftest.py): the same rewrites, run in Python; and
# `assert_agrees` leaves out what would compile a program again to no other end.
COMPILES_LITTLE = not pytensor.config.cxx
FAST_RUN = Mode(linker="vm" if COMPILES_LITTLE else "cvm", optimizer="fast_run").excluding(_WRONG)
MODES = (FAST_COMPILE, FAST_RUN)

# There is none to link to here. The search for one takes a second, and warns.
pytensor.config.blas__ldflags = ""


def assert_trees_close(
    actual: Any, expected: Any, rtol: float = 1e-10, atol: float = 1e-12, what: str = ""
) -> None:
    """Assert that structures, dtypes and shapes are equal, and values equal up to rounding."""
    chex.assert_trees_all_equal_structs(actual, expected)
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        np.testing.assert_allclose(a, b, rtol, atol, strict=True, err_msg=what)


def assert_agrees(
    inputs: Sequence[Any],
    outputs: Any,
    values: Sequence[Any],
    *,
    rtol: float = 1e-10,
    atol: float = 1e-12,
    grad_wrt: Sequence[Any] = (),
    vmap: Sequence[int] = (),
    static: Sequence[int] = (),
    modes: Sequence[Any] = MODES[:1] if COMPILES_LITTLE else MODES,
    direct: bool = not COMPILES_LITTLE,
) -> Any:
    """Assert that ``jaxify(inputs, outputs)`` is the program ``outputs``; return its values.

    Against PyTensor in ``modes``, and against `evaluate` of the graph in the IR, before and after
    the passes, with `check` around them; under ``jax.jit``, and called directly. In `make test` against one
    mode, and directly only where rows are compared with a batch.

    Parameters
    ----------
    grad_wrt
        Of these inputs, ``jax.grad`` of the sum of squares of the float outputs, against
        ``pytensor.grad`` of it, compiled by PyTensor and transpiled; the latter agrees in all of the
        above too.
    vmap
        Positions of inputs to batch: ``jax.vmap`` against a loop over the rows.
    static
        Positions of inputs whose values make shapes: Python values under ``jax.jit``.
    direct
        Whether to call it outside of ``jax.jit`` too, which compiles once more.
    """
    leaves, tree = jax.tree.flatten(outputs, is_leaf=is_variable)
    agrees = partial(assert_trees_close, rtol=rtol, atol=atol)
    expected = None
    for mode in modes:
        run = pytensor.function(inputs, leaves, mode=mode, on_unused_input="ignore")
        actual = [np.asarray(x) for x in run(*values)]
        if expected is None:
            expected = actual
            for x, v in zip(actual, leaves, strict=True):
                assert x.dtype == v.type.dtype
        agrees(actual, expected)

    program = imported(inputs, outputs)
    given = [v.type.filter(x, allow_downcast=True) for v, x in zip(inputs, values, strict=True)]
    given += [s.value for s in program.shared]
    agrees([np.asarray(x) for x in evaluate(program.graph, *given)], expected)
    lower(program.graph)
    check(program.graph)
    agrees([np.asarray(x) for x in evaluate(program.graph, *given)], expected)

    expected = jax.tree.unflatten(tree, expected)
    f = jaxify(inputs, outputs)
    if direct:
        actual = f(*values)
        assert all(isinstance(x, jax.Array) for x in jax.tree.leaves(actual))
        agrees(actual, expected)
    actual = jax.jit(f, static_argnums=tuple(static))(*values)
    agrees(actual, expected)
    if vmap:
        _agrees_batched(f, values, vmap, agrees)
    if grad_wrt:
        floats = [k for k, v in enumerate(leaves) if v.type.dtype.startswith("float")]
        cost = sum((leaves[k] ** 2).sum() for k in floats)
        gradients = pytensor.grad(cost, list(grad_wrt))
        by_pytensor = assert_agrees(
            inputs,
            gradients,
            values,
            rtol=rtol,
            atol=atol,
            static=static,
            modes=modes[:1],
            direct=False,
        )

        def squares(*xs: Any) -> Any:
            outs = jax.tree.leaves(f(*xs))
            return sum(jnp.sum(outs[k] ** 2) for k in floats)

        positions = [list(inputs).index(x) for x in grad_wrt]
        by_jax = gradient(squares, positions, values)
        agrees(by_jax, by_pytensor)
    return actual


def gradient(function: Callable[..., Any], positions: Sequence[int], values: Sequence[Any]) -> Any:
    """``jax.grad`` with respect to some inputs; the others, which may make shapes, stay as they are."""

    def of(*some: Any) -> Any:
        everything = list(values)
        for k, x in zip(positions, some, strict=True):
            everything[k] = x
        return function(*everything)

    some = [jnp.asarray(values[k]) for k in positions]
    return list(jax.jit(jax.grad(of, argnums=tuple(range(len(some)))))(*some))


def _agrees_batched(f: Any, values: Sequence[Any], batched: Sequence[int], agrees: Any) -> None:
    def row(r: int) -> list[Any]:
        return [x * (1 - 0.25 * r) if k in batched else x for k, x in enumerate(values)]

    rows = [row(r) for r in range(3)]
    stacked = [np.stack([r[k] for r in rows]) if k in batched else x for k, x in enumerate(values)]

    def of(*some: Any) -> Any:
        everything = list(values)
        for k, x in zip(batched, some, strict=True):
            everything[k] = x
        return f(*everything)

    actual = jax.jit(jax.vmap(of))(*[stacked[k] for k in batched])
    agrees(actual, jax.tree.map(lambda *xs: np.stack(xs), *[f(*r) for r in rows]))


def is_variable(x: Any) -> bool:
    return isinstance(x, Variable)


def imported(inputs: Sequence[Any], outputs: Any) -> Program:
    """The program in the IR, checked, not yet lowered."""
    program = read_variables(inputs, outputs)
    import_graph(program.graph)
    check(program.graph)
    return program


def value(outputs: Any, inputs: Sequence[Any] = (), values: Sequence[Any] = ()) -> Any:
    """The values of ``outputs`` in PyTensor."""
    return pytensor.function(list(inputs), outputs, mode=FAST_COMPILE)(*values)


def loops(graph: Any) -> list[Apply]:
    """The `Scan` nodes of a graph, those in bodies behind the one they are in."""
    actual = []
    for node in graph.toposort():
        actual += [node] if isinstance(node.op, Scan) else []
        actual += loops(node.op.fgraph) if isinstance(node.op, InnerGraphOp) else []
    return actual


def ports(graph: Any) -> list[tuple[int, ...]]:
    """The numbers of sequences, states, constants and traces of each loop."""
    ops = [node.op for node in loops(graph)]
    return [(op.n_seqs, op.n_states, op.n_consts, op.n_ys) for op in ops]


def equations(jaxpr: Any) -> Iterator[Any]:
    """The equations of a jaxpr, those inside of loops and calls included."""
    if isinstance(jaxpr, ClosedJaxpr):
        jaxpr = jaxpr.jaxpr
    for equation in jaxpr.eqns:
        yield equation
        inner = jax.tree.leaves(
            equation.params, is_leaf=lambda x: isinstance(x, Jaxpr | ClosedJaxpr)
        )
        for one in inner:
            if isinstance(one, Jaxpr | ClosedJaxpr):
                yield from equations(one)


def primitives(jaxpr: Any) -> Counter[str]:
    """How often each primitive occurs in a jaxpr, those inside of loops and calls included."""
    return Counter(equation.primitive.name for equation in equations(jaxpr))
