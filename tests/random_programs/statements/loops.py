"""Loops of every kind: taps, until, cuts, checkpoints, carries in trees, loops in loops."""

from typing import Any

from tests.random_programs.description import Function, Statement
from tests.random_programs.statements.calls import condition
from tests.random_programs.writing import ROWS, Nothing, Value, Writer, statement


def following(w: Writer, states: list[Value]) -> tuple[list[str], tuple[Statement, ...]]:
    """A next state for each, of its type."""
    names, statements = [], ()
    for state in states:
        near = [v for v in w.pool if v.shape == state.shape and v.name != state.name]
        v = near[-1 - min(len(near) - 1, w.rng.randrange(2))] if near else state
        if not near and w.chance(0.7):
            v = w.pick(lambda v: not v.ndim)
        statements += w.tamed(v, state)
        names.append(statements[-1].targets[0])
    return names, statements


def emitted(w: Writer) -> str:
    return w.pick(lambda v: v.ndim < 3 and v.value.size < 40).name


def rows_of_a_sequence(w: Writer) -> Value:
    return w.array(1, 3)


def initial(w: Writer) -> Value:
    return w.pick(lambda v: v.ndim < 3 and v.value.size > 0)


@statement("pytensor.scan", 5, block=True)
def legacy_scan(w: Writer) -> Any:
    sequences, params, rows = [], {}, []
    for _ in range(w.choice([0, 1, 1, 2])):
        x = rows_of_a_sequence(w)
        if sequences and x.shape[0] != rows[0].shape[0]:
            continue
        rows.append(x)
        taps = w.choice([[0], [0], [0, 1], [-1, 0], [-1]]) if x.shape[0] > 2 else [0]
        sequences.append(x.name if taps == [0] else f"dict(input={x.name}, taps={taps})")
        for t in taps:
            params[w.new("p")] = f"{x.name}[{t - min(0, *taps)}]"
    infos: list[str] = []
    states: list[str] = []
    for _ in range(w.choice([0, 1, 1, 2])):
        init = initial(w)
        if init.ndim and init.shape[0] > 1 and w.chance(0.5):
            back = min(init.shape[0], 3)
            taps = w.choice([t for t in ([-1, -2], [-2], [-1, -3], [-3]) if -min(t) <= back])
            infos.append(f"dict(initial={init.name}[:{-min(taps)}], taps={sorted(taps)})")
            for t in sorted(taps):
                params[w.new("p")] = f"{init.name}[{-min(taps) + t}]"
                states.append(list(params)[-1])
            states[len(infos) - 1 :] = [states[-1]]
        else:
            infos.append(init.name)
            params[w.new("p")] = f"pt.as_tensor({init.name})"
            states.append(list(params)[-1])
    outer = [w.pick() for _ in range(w.choice([0, 0, 1]))]
    for v in outer:
        params[w.new("p")] = v.name
    with w.body(params) as own:
        body = w.statements(1, 4)
        of = {v.name: v for v in own}
        nexts, more = following(w, [of[s] for s in states])
        body += more
        n_traced = w.choice([0, 1]) if states else 1
        outs = nexts + [emitted(w) for _ in range(n_traced)]
        stop = w.chance(0.15)
        returns = f"[{', '.join(outs)}]"
        if stop:
            returns = f"{returns}, until({condition(w)})"
    infos += ["None"] * n_traced
    options = "".join(f", non_sequences=[{', '.join(v.name for v in outer)}]" if outer else "")
    if not sequences:
        counts = [
            v.name
            for v in w.pool
            if v.name[0] == "x" and not v.ndim and v.dtype == "int64" and 0 < v.value <= ROWS
        ]
        options += f", n_steps={w.choice([*counts, 2, 3, 4])}"
    elif w.chance(0.15) and not stop:
        options += ", go_backwards=True"
    if w.chance(0.1) and not stop and states:
        options += f", truncate_gradient={w.choice([1, 2])}"
    f = Function(w.new("f"), tuple(params), body, returns)
    text = (
        f"pytensor.scan({f.name}, sequences=[{', '.join(sequences)}], outputs_info=[{', '.join(infos)}]"
        f"{options}, return_updates=False, return_list=True)"
    )
    if len(outs) == 1:
        return f"{text}[{w.choice(['0', '0', '0][-1', '0][::-1'])}]", (f,), 1
    if w.chance(0.2):
        return f"[y[-1] for y in {text}]", (f,), len(outs)
    return text, (f,), len(outs)


@statement("loopax.scan", 5, block=True)
def scan(w: Writer) -> Any:
    states = [initial(w) for _ in range(w.choice([1, 1, 2]))]
    x = rows_of_a_sequence(w) if w.chance(0.7) else None
    names = [w.new("p") for _ in states]
    carry, row = w.new("p"), w.new("p")
    params = dict(zip(names, [f"pt.as_tensor({v.name})" for v in states], strict=True))
    if x is not None:
        params[row] = f"{x.name}[0]"
    with w.body(params) as own:
        body = w.statements(1, 4)
        nexts, more = following(w, own[: len(states)])
        body += more
        ys = [emitted(w) for _ in range(w.choice([1, 1, 2]))]
        stop = f", {condition(w)}" if w.chance(0.15) else ""
    unpack = Statement("carry", tuple(names), carry if len(names) > 1 else f"{carry}[0]")
    y = ys[0] if len(ys) == 1 else f"{{'a': {ys[0]}, 'b': ({ys[1]},)}}"
    returns = f"({', '.join(nexts)},), {y}{stop}"
    f = Function(w.new("f"), (carry, row), (unpack, *body), returns)
    init = f"({', '.join(v.name for v in states)},)"
    length = "" if x is not None else f", length={w.choice([1, 2, 3, 4])}"
    options = w.choice(["", "", "", ", reverse=True", ", checkpoint=2", ", checkpoint='sqrt'"])
    if w.chance(0.1):
        options += f", truncate_gradient={w.choice([1, 2])}"
    text = f"loopax.scan({f.name}, {init}, {x.name if x is not None else None}{length}{options})"
    taken = "*r[0], r[1]" if len(ys) == 1 else "*r[0], r[1]['a'], r[1]['b'][0]"
    n = len(names) + len(ys)
    return f"(lambda r: [{taken}])({text})", (f,), n


@statement("loopax.map", 2, block=True)
def mapped(w: Writer) -> Any:
    x = rows_of_a_sequence(w)
    row = w.new("p")
    with w.body({row: f"{x.name}[0]"}):
        body = w.statements(1, 3)
        f = Function(w.new("f"), (row,), body, emitted(w))
    return f"loopax.map({f.name}, {x.name})", (f,), 1


@statement("loopax.reduce", 2, block=True)
def reduced(w: Writer) -> Any:
    x, init = rows_of_a_sequence(w), initial(w)
    carry, row = w.new("p"), w.new("p")
    with w.body({carry: f"pt.as_tensor({init.name})", row: f"{x.name}[0]"}) as own:
        body = w.statements(1, 3)
        nexts, more = following(w, own[:1])
        f = Function(w.new("f"), (carry, row), body + more, nexts[0])
    options = w.choice(["", "", ", reverse=True", ", checkpoint=2"])
    return f"loopax.reduce({f.name}, {init.name}, {x.name}{options})", (f,), 1


@statement("loopax.fori_loop", 2, block=True)
def fori_loop(w: Writer) -> Any:
    init = initial(w)
    i, carry = w.new("p"), w.new("p")
    lo = w.choice([0, 0, 1, -2])
    hi = f"{lo + w.choice([1, 2, 3])}"
    with w.body({i: f"pt.constant(np.int64({lo}))", carry: f"pt.as_tensor({init.name})"}) as own:
        body = w.statements(1, 3)
        nexts, more = following(w, own[1:])
        f = Function(w.new("f"), (i, carry), body + more, nexts[0])
    return f"loopax.fori_loop({lo}, {hi}, {f.name}, {init.name})", (f,), 1


@statement("loopax.while_loop", 2, block=True)
def while_loop(w: Writer) -> Any:
    init = initial(w)
    carry, again = w.new("p"), w.new("p")
    with w.body({carry: f"pt.as_tensor({init.name})"}) as own:
        body = w.statements(1, 3)
        nexts, more = following(w, own)
        f = Function(w.new("f"), (carry,), body + more, nexts[0])
    end = w.choice([1, 2, 0.3])
    test = f"({again} < {end}).all()" if init.ndim else f"{again} < {end}"
    if init.kind == "b":
        raise Nothing
    text = f"loopax.while_loop({f.name}, {init.name}, max_steps={w.choice([1, 3, 5])})"
    return text.replace("while_loop(", f"while_loop(lambda {again}: {test}, "), (f,), 1
