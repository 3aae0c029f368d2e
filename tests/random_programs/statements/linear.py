"""Products and linear algebra, also in batches."""

from tests.random_programs.writing import Nothing, Value, Writer, statement


@statement("product", 2)
def product(w: Writer) -> str:
    v = w.array(1, 3)
    u = w.pick(lambda u: 1 <= u.ndim <= 3 and u.shape[0 if u.ndim == 1 else -2] == v.shape[-1])
    forms = [
        "{0} @ {1}",
        "pt.matmul({0}, {1})",
        "pt.dot({0}, {1})",
        "pt.tensordot({0}, {1}, axes=1)",
    ]
    if v.ndim == u.ndim == 2:
        forms += ["pt.einsum('ij,jk->ik', {0}, {1})", "pt.linalg.kron({0}, {1})"]
    if v.ndim == u.ndim == 1:
        forms += ["pt.outer({0}, {1})", "pt.vecdot({0}, {1})"]
    return w.choice(forms).format(v.name, u.name)


def square(w: Writer) -> tuple[Value, str]:
    """A positive definite matrix, or several."""
    v = w.float(2)
    if 0 in v.shape or max(v.shape[-2:]) > 4:
        raise Nothing
    return v, w.choice(
        [
            f"({v.name} @ {v.name}.mT + 2 * pt.eye({v.name}.shape[-2]))",
            f"({v.name} @ {v.name}.mT + 2 * np.eye({v.shape[-2]}))",
        ]
    )


@statement("decomposition", 1.5)
def decomposition(w: Writer) -> str:
    v, a = square(w)
    forms = [
        *["pt.linalg.inv({1})", "pt.linalg.det({1})", "pt.linalg.cholesky({1})"],
        *["pt.linalg.slogdet({1})[1]", "pt.linalg.eigvalsh({1}, None)", "pt.linalg.pinv({1})"],
        *["pt.linalg.expm(0.1 * {1})", "pt.log(pt.linalg.det({1}))", "pt.linalg.norm({0})"],
        *["pt.linalg.svd({0}, compute_uv=False)", "pt.abs(pt.linalg.qr({0}, mode='r'))"],
        *["pt.linalg.eigh({1})[0]", "pt.linalg.matrix_power({1}, 2)", "pt.linalg.qr({1})[0]"],
        *["pt.linalg.cholesky({1}, lower=False)", "pt.linalg.lu_factor({1})[0]"],
    ]
    return w.choice(forms).format(v.name, a)


@statement("solve", 1.5)
def solve(w: Writer) -> str:
    v, a = square(w)
    b = w.pick(lambda b: b.is_float and b.ndim >= 1 and v.shape[-2] in b.shape[-2:])
    # SciPy takes a matrix of one row for a number, and any vector with it.
    fits = [k for k in (1, 2) if b.ndim >= k and b.shape[-k] == v.shape[-2]]
    forms = [
        "pt.linalg.solve({0}, {1}, b_ndim={2})",
        "pt.linalg.solve({0}, {1}, assume_a='pos', b_ndim={2})",
        "pt.linalg.solve_triangular({0}, {1}, lower=True, b_ndim={2})",
        "pt.linalg.solve_triangular({0}, {1}, trans=1, b_ndim={2})",
        "pt.linalg.cho_solve((pt.linalg.cholesky({0}), True), {1}, b_ndim={2})",
    ]
    return w.choice(forms).format(a, b.name, w.choice(fits))


@statement("block", 0.5)
def block(w: Writer) -> str:
    v, u = w.float(2, 2), w.float(2, 2)
    return f"pt.linalg.block_diag({v.name}, {u.name})"


def structured(w: Writer) -> tuple[Value, str]:
    """A square matrix, or several, whose structure PyTensor's rewrites see; none is singular."""
    v, a = square(w)
    forms = [
        *["pt.linalg.block_diag({1}, 2 * {1})", "pt.tril({1})", "pt.triu({1}).mT", "{1}.mT @ {1}"],
        *["-pt.linalg.cholesky({1})", "pt.linalg.inv({1})", "pt.linalg.pinv({1})"],
        *["pt.tril({1}) @ pt.tril({1}).mT", "pt.linalg.qr({1})[0]", "pt.linalg.inv({1}).mT"],
    ]
    if v.ndim == 2:
        forms += [
            "pt.linalg.kron({1}, {1})",
            "pt.diag(pt.diag({1}))",
            "pt.linalg.kron(pt.eye(2), {1})",
        ]
    return v, w.choice(forms).format(v.name, a)


@statement("structure", 1)
def structure(w: Writer) -> str:
    """What depends on a structured matrix, and may be computed from its parts."""
    v, a = structured(w)
    forms = [
        *["pt.linalg.det({1})", "pt.linalg.inv({1})", "pt.log(pt.abs(pt.linalg.det({1})))"],
        *["pt.linalg.cholesky({1} @ {1}.mT)", "pt.linalg.pinv({1})", "pt.linalg.slogdet({1})[1]"],
        *[
            "pt.diagonal({1}, offset={2}, axis1=-2, axis2=-1)",
            "pt.linalg.svd({1}, compute_uv=False)",
        ],
        *[
            "pt.linalg.solve_triangular({1}, pt.ones_like({1}), lower=True)",
            "pt.linalg.inv({1}) @ {1}",
        ],
        *["pt.linalg.solve({1}, pt.ones_like({1}))", "{1} @ pt.linalg.inv({1} + {1}.mT)"],
    ]
    return w.choice(forms).format(v.name, a, w.choice([-1, 0, 0, 1]))
