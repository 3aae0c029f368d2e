"""Dtypes as PyTensor has them: small integers, their divisions, mixtures, reductions, casts."""

import numpy as np
import pytensor
import pytensor.tensor as pt

from .record import program, scan

I8 = [-100, 7, 50, 127]
U8 = [0, 7, 200, 255]
F32 = np.array([0.5, -1.25, 3.0, 8.0])


@program(I8, U8, thread="pytensor 853")
def divisions_of_small_integers():
    """True division of int8 and uint8 is float64 here, float32 in JAX."""
    a, b = pt.vector("a", dtype="int8"), pt.vector("b", dtype="uint8")
    return [a, b], [a / np.int8(4), b / np.uint8(8), a / (b + np.uint8(1)), a.mean(), b.mean()]


@program([-7, 7, -8, 9], [2, -2, 3, 4], thread="jax 1933")
def floor_division_and_modulo():
    a, b = pt.vector("a", dtype="int32"), pt.vector("b", dtype="int32")
    return [a, b], [a // b, a % b, a / b]


@program([-7.5, 7.5, -8.0], [2.0, -2.0, 3.0], thread="jax 1933", grad_wrt=("a",))
def modulo_of_floats():
    a, b = pt.vector("a"), pt.vector("b")
    return [a, b], [a % b, a // b, pt.trunc(a), pt.round(a, mode="half_to_even")]


@program(F32, [1, 2, 3, 4], thread="pytensor 1652")
def float32_with_int64():
    x, n = pt.fvector("x"), pt.lvector("n")
    return [x, n], [x * n, x + n, x**2 * n.sum(), pt.switch(n > 2, x, n)]


@program(F32, [1, 2, 3, 4], thread="pytensor 1652")
def float32_with_small_integers():
    x, n = pt.fvector("x"), pt.vector("n", dtype="int8")
    return [x, n], [x * n, x / n, n + 1, n * 1.5, x > n]


@program(F32, thread="pytensor 1652", grad_wrt=("x",), rtol=1e-6, grad_rtol=1e-5)
def float32_all_through():
    x = pt.fvector("x")
    w = pytensor.shared(np.ones((4, 4), dtype="float32") * np.float32(0.1), name="w")
    h = scan(lambda h: pt.tanh(h @ w), outputs_info=x, n_steps=3)
    return [x], [h[-1], pt.exp(x).mean()]


@program(I8, U8, thread="pytensor 328")
def integers_that_wrap():
    a, b = pt.vector("a", dtype="int8"), pt.vector("b", dtype="uint8")
    return [a, b], [a + a, a * np.int8(3), b - np.uint8(8), pt.abs(a), pt.sqr(b)]


@program([True, False, True], I8, thread="aesara 138")
def reductions_of_small_integers():
    flag, a = pt.vector("flag", dtype="bool"), pt.vector("a", dtype="int8")
    return [flag, a], [
        flag.sum(),
        flag.mean(),
        a.sum(),
        a.prod(),
        a.max(),
        pt.cumsum(a),
        a.sum(dtype="int8"),
        flag.any(),
        flag.all(),
        pt.argmax(a),
    ]


@program([-2.7, 1.5, 300.0], [True, False, True], thread="jax 17105")
def casts():
    x, flag = pt.vector("x"), pt.vector("flag", dtype="bool")
    return [x, flag], [
        pt.cast(x, "int32"),
        pt.cast(x[:2], "int8"),
        pt.cast(flag, "float32"),
        flag * x,
        pt.cast(x, "bool"),
        x.astype("float32"),
    ]


@program([12, 10, 7], [3, 5, 1], thread="pytensor 328")
def bits():
    a, b = pt.vector("a", dtype="uint8"), pt.vector("b", dtype="uint8")
    return [a, b], [a & b, a | b, a ^ b, ~a, pt.eq(a, b) | pt.gt(a, b)]


@program([1, 2, 3], [0, 3, 2], thread="aesara 684")
def powers_of_integers():
    a, b = pt.lvector("a"), pt.lvector("b")
    return [a, b], [a**b, a**2, 2**b, a**-1.0, pt.sqrt(a), pt.exp(b)]


@program([1, 2, 3], thread="pytensor 1652")
def constants_keep_their_own_dtype():
    """A Python 0 is an int8 and a 1.0 a float32: what a sum with them becomes."""
    n = pt.vector("n", dtype="int8")
    one = pt.constant(1.0)
    return [n], [one, n + 1, n * one, pt.as_tensor(0), pt.constant(300) + n, pt.ones(2) * n[0]]


@program([1.0 + 2.0j, -0.5j], thread="aesara 322")
def complex_numbers():
    z = pt.zvector("z")
    return [z], [z.real, z.imag, pt.abs(z) ** 2, (z * z.conj()).real, z * 2.0]


@program([[1.0, np.inf], [np.nan, -np.inf]], thread="jax 8247")
def infinities_and_nan():
    m = pt.matrix("m")
    return [m], [
        pt.isnan(m),
        pt.isinf(m),
        m.sum(axis=1),
        m.max(axis=1),
        pt.argmax(m, axis=1),
        pt.maximum(m, 0.0),
        pt.sign(m),
    ]
