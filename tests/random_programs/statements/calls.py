"""Branches, calls of graphs, typed lists, sparse matrices, and functions over batches."""

from typing import Any

from tests.random_programs.description import Function
from tests.random_programs.writing import Nothing, Value, Writer, statement


def condition(w: Writer) -> str:
    v = w.pick(lambda v: not v.ndim)
    return w.choice(["{0} > 0", "{0} < 0.5", "pt.neq({0}, 1)"]).format(v.name)


@statement("ifelse", 1)
def if_else(w: Writer) -> str:
    v = w.pick()
    u = w.pick(lambda u: u.dtype == v.dtype and u.shape == v.shape)
    return f"ifelse({condition(w)}, {v.name}, {u.name})"


@statement("cond", 1, block=True)
def cond(w: Writer) -> Any:
    pred, operand = condition(w), w.pick()
    param = w.new("p")
    functions: list[Function] = []
    wanted: Value | None = None
    for k in range(2):
        with w.body({param: operand.name}) as own:
            body = w.statements(1, 2)
            fits = [
                v
                for v in [*w.pool[::-1], *own]
                if wanted is None or (v.dtype == wanted.dtype and v.shape == wanted.shape)
            ]
            if k == 0:
                wanted = fits[0]
            if not fits:
                raise Nothing
            functions.append(Function(w.new("f"), (param,), body, fits[0].name))
    names = ", ".join(f.name for f in functions)
    return f"loopax.cond({pred}, {names}, {operand.name})", tuple(functions), 1


@statement("OpFromGraph", 1, block=True)
def call(w: Writer) -> Any:
    """The graph of the body's own parameters; nothing around it is seen."""
    operands = [w.pick() for _ in range(w.choice([1, 2]))]
    params = [w.new("p") for _ in operands]
    with w.body(dict(zip(params, [v.name for v in operands], strict=True))) as own:
        w.pool = list(own)
        body = w.statements(1, 3)
        outs = [v for v in w.pool if v not in own][-2:]
        if not outs:
            raise Nothing
    returns = "[" + ", ".join(v.name for v in outs) + "]"
    f = Function(w.new("f"), tuple(params), body, returns)
    names = ", ".join(v.name for v in operands)
    types = ", ".join(f"{v.name}.type()" for v in operands)
    dummies = f"(lambda *a: OpFromGraph(list(a), {f.name}(*a)))({types})"
    return f"{dummies}({names})", (f,), len(outs)


@statement("typed list", 1)
def typed_list(w: Writer) -> str:
    v = w.array()
    u = w.pick(lambda u: u.dtype == v.dtype and u.ndim == v.ndim)
    made = f"typed_list.make_list([{v.name}, {u.name}, {v.name} + {v.name}])"
    k = w.choice([0, 1, 2, -1])
    forms = [
        f"{made}[{k}]",
        f"typed_list.length({made})",
        f"typed_list.append({made}, {u.name})[3]",
        f"typed_list.reverse({made})[{k}]",
        f"typed_list.insert({made}, 1, {v.name})[{k}]",
        f"{made}[1:][0]",
    ]
    return w.choice(forms)


@statement("sparse", 1)
def sparse(w: Writer) -> str:
    v = w.float(2, 2)
    kind = w.choice(["csr_from_dense", "csc_from_dense"])
    made = f"sparse.{kind}({v.name})"
    forms = [
        f"sparse.dense_from_sparse({made})",
        f"sparse.sp_sum({made}, axis={w.choice([None, 0, 1])})",
        f"sparse.dense_from_sparse(sparse.transpose({made}))",
        f"sparse.dense_from_sparse(sparse.multiply({made}, {v.name}))",
        f"sparse.dense_from_sparse(sparse.add({made}, {made}))",
        f"sparse.dense_from_sparse({made} * 2.0)",
    ]
    fits = [u for u in w.pool if u.is_float and u.ndim == 2 and u.shape[0] == v.shape[1]]
    if fits:
        u = w.choice(fits).name
        forms += [f"sparse.structured_dot({made}, {u})", f"sparse.dot({made}, {u})"] * 2
    return w.choice(forms)


@statement("vectorize", 0.7)
def vectorize(w: Writer) -> str:
    v = w.float(2, 3)
    forms = [
        "pt.vectorize(lambda a: pt.cumsum(a), signature='(n)->(n)')({0})",
        "pt.vectorize(lambda a: a[::-1] * a.sum(), signature='(n)->(n)')({0})",
        "pt.vectorize(lambda a: a.max() - a[0], signature='(n)->()')({0})",
        "pt.vectorize(lambda a: pt.sort(a)[:1], signature='(n)->(m)')({0})",
        "pt.vectorize(lambda a: a[np.array([0, 0])], signature='(n)->(m)')({0})",
        "pt.vectorize(lambda a: pt.set_subtensor(a[0], 1.5), signature='(n)->(n)')({0})",
        "pt.vectorize(lambda a: pt.outer(a, a), signature='(n)->(n,n)')({0})",
    ]
    return w.choice(forms).format(v.name)
