"""Keyword arguments of the loops of JAX and of `pytensor.scan`, and what to write in place of each."""

from __future__ import annotations

_ROWS = "they are called xs"
_STEPS = "it is called length"
_CAPTURED = "a function captures the variables that it uses"

SCAN = {
    "f": "the step comes first, without a name: scan(step, init, xs)",
    "fn": "the step comes first, and takes (carry, x): scan(step, init, xs)",
    "sequences": f"{_ROWS}: scan(step, init, xs)",
    "outputs_info": "the carry before the first step is init: scan(step, init, xs)",
    "non_sequences": f"{_CAPTURED}: scan(step, init, xs)",
    "n_steps": f"{_STEPS}: scan(step, init, length=n)",
    "go_backwards": "it is called reverse: scan(step, init, xs, reverse=True)",
    "return_updates": "there are no updates, because a step carries its generators",
}

REDUCE = {
    "fn": "the function comes first, and takes (carry, x): reduce(f, init, xs)",
    "function": "the function comes first, without a name: reduce(f, init, xs)",
    "sequences": f"{_ROWS}: reduce(f, init, xs)",
    "outputs_info": "the carry before the first row is init: reduce(f, init, xs)",
    "non_sequences": f"{_CAPTURED}: reduce(f, init, xs)",
    "go_backwards": "it is called reverse: reduce(f, init, xs, reverse=True)",
}

MAP = {
    "fn": "the function comes first, and takes one row: map(f, xs)",
    "sequences": f"{_ROWS}: map(f, xs)",
    "non_sequences": f"{_CAPTURED}: map(f, xs)",
    "batch_size": "map runs a loop. To compute all rows at once: loopax.vmap(f)(xs)",
}

FILTER = {
    "f": "the predicate comes first, without a name: filter(pred, xs)",
    "fn": "the predicate comes first, and takes one row: filter(pred, xs)",
    "sequences": f"{_ROWS}: filter(pred, xs)",
}

FORI_LOOP = {
    "lower": "it is called lo: fori_loop(lo, hi, body, init)",
    "upper": "it is called hi: fori_loop(lo, hi, body, init)",
    "body_fun": "it is called body: fori_loop(lo, hi, body, init)",
    "init_val": "it is called init: fori_loop(lo, hi, body, init)",
}

WHILE_LOOP = {
    "cond_fun": "it is called cond: while_loop(cond, body, init)",
    "body_fun": "it is called body: while_loop(cond, body, init)",
    "init_val": "it is called init: while_loop(cond, body, init)",
}

COND = {
    "true_fun": "it is called true_fn: cond(pred, true_fn, false_fn, *operands)",
    "false_fun": "it is called false_fn: cond(pred, true_fn, false_fn, *operands)",
    "operand": "operands come last, without a name: cond(pred, true_fn, false_fn, *operands)",
}
