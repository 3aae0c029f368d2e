"""Special functions that are wrong or missing in PyTensor's conversion, or in JAX.

They cover real numbers; PyTensor computes functions of complex numbers on the host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytensor.scalar.math as sm

from loopax.numerics.special import bessel, incomplete_gammas, inverses, normal_tails, polygammas
from loopax.numerics.special.hypergeometric import hyp2f1
from loopax.numerics.special.incomplete_beta import betainc

SPECIAL_FUNCTIONS: dict[type, Callable[..., Any]] = {
    sm.Gamma: polygammas.gamma,
    sm.GammaLn: polygammas.gammaln,
    sm.Psi: polygammas.psi,
    sm.TriGamma: polygammas.tri_gamma,
    sm.PolyGamma: polygammas.polygamma,
    sm.GammaInc: incomplete_gammas.gammainc,
    sm.GammaIncC: incomplete_gammas.gammaincc,
    sm.BetaInc: betainc,
    sm.GammaIncInv: inverses.gammaincinv,
    sm.GammaIncCInv: inverses.gammainccinv,
    sm.BetaIncInv: inverses.betaincinv,
    sm.Erfcinv: normal_tails.erfcinv,
    sm.Erfcx: normal_tails.erfcx,
    sm.Owens_t: normal_tails.owens_t,
    sm.J0: bessel.j0,
    sm.J1: bessel.j1,
    sm.I0: bessel.i0,
    sm.I1: bessel.i1,
    sm.Hyp2F1: hyp2f1,
}
# Only some releases of PyTensor have these.
for _name, _function in (
    ("GammaL", incomplete_gammas.gammal),
    ("GammaU", incomplete_gammas.gammau),
    ("NdtriExp", normal_tails.ndtri_exp),
):
    if hasattr(sm, _name):
        SPECIAL_FUNCTIONS[getattr(sm, _name)] = _function
