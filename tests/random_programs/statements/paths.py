"""Idioms for paths: a first row in front of a trace, and rows compared with a value of the whole path."""

from tests.random_programs.writing import Writer, statement


@statement("path", 2)
def path(w: Writer) -> str:
    v = w.array(1, 3)
    first = w.pick(lambda u: u.shape == v.shape[1:] and u.kind == v.kind)
    forms = [
        "pt.concatenate([pt.expand_dims({1}, 0), {0}])",
        "pt.concatenate([{0}[:1], {0}])",
        "pt.concatenate([{0}, {0}[-1:]])",
        "pt.concatenate([pt.zeros_like({0}[:1]), {0}])",
        "pt.concatenate([{0}[:1], {0}[1:] - {0}[:-1]])",
        "pt.concatenate([{0}[::-1], {0}])",
    ]
    return w.choice(forms).format(v.name, first.name)


@statement("whole path", 2)
def whole_path(w: Writer) -> str:
    v = w.array(1, 3)
    axis = w.choice([0, 0, w.axis(v)])
    forms = [
        "{0} - pt.max({0}, axis={1}, keepdims=True)",
        "({0} - pt.mean({0}, axis={1}, keepdims=True)) / (1 + pt.var({0}, axis={1}, keepdims=True))",
        "pt.logsumexp(1.0 * {0}, axis={1})",
        "pt.special.softmax(1.0 * {0}, axis={1})",
        "pt.var({0}, axis={1})",
        "(({0} - {0}[-1]) ** 2).sum(axis={1})",
        "({0} * {0}[:1]).sum(axis={1})",
        "pt.exp(-({0} - {0}[0]) ** 2).sum(axis={1})",
        "({0} * pt.cumsum({0}, axis=0)[-1]).sum(axis=0)",
    ]
    return w.choice(forms).format(v.name, axis)
