"""``gammaln``, ``psi`` and ``tri_gamma`` of float64, as vector code.

Within three units in the last place. For large arguments they are Stirling's series, as polynomials of
the inverse; near their zeros, polynomials with the zero as a factor; recurrences map arguments in
between, and reflection formulas arguments below 0. Below 0 the first two functions have a zero in each
unit: near it the error is absolute, some units in the last place of the terms of the reflection. The
polynomials have minimax error, relative to the function.
"""

from __future__ import annotations

import math

import numpy as np

from loopax.numerics.vector_functions.arithmetic import compiled, nearest_integer, polynomial, where
from loopax.numerics.vector_functions.exponentials import log, log_of_sum

_SINPI = polynomial(  # (sin(pi r) / r - pi) / r^2 of r^2, r up to 1/2
    -5.167712780049969,
    2.550164039877303,
    -0.5992645293189581,
    0.08214588657277341,
    -0.00737043050016727,
    0.0004662997793920825,
    -2.1903389117443135e-05,
    7.696613988800593e-07,
)
_COT = polynomial(  # (pi r cot(pi r) - 1) / r^2 of r^2, r up to 1/2
    -3.2898681336964533,
    -2.1646464674219423,
    -2.0346861240313756,
    -2.0081547069292904,
    -2.0019894217685095,
    -2.000483671798358,
    -2.0003011929191925,
    -1.9974092043723706,
    -2.0274570234481257,
    -1.7927975514535262,
    -3.124812991881767,
    2.317159112040052,
    -13.266629210292272,
    16.4110715182667,
    -17.338705858520708,
)
_LGAMMA_NEAR = polynomial(  # gammaln(x) / ((x - 1) (x - 2)) of x - 1.85, x from 1.2 to 2.5
    0.4386181413306453,
    -0.11111600481590589,
    0.03929151501604013,
    -0.015927547360777665,
    0.006943969881418621,
    -0.003164305593002562,
    0.0014847121683977263,
    -0.0007110685315048384,
    0.0003457216753280217,
    -0.00017003522916180758,
    8.43886271723066e-05,
    -4.219059429030162e-05,
    2.1227560599701147e-05,
    -1.0733489261957363e-05,
    5.425655659643655e-06,
    -2.761914558711652e-06,
    1.4831032029837585e-06,
    -7.678364285931279e-07,
    2.7053976758744e-07,
    -1.3204768600441377e-07,
    1.9216455783278253e-07,
    -1.0283301332159731e-07,
)
# x (gammaln(x) - (x - 1/2) log(x) + x - log(2 pi) / 2) of 1 / x^2, x from 3.5 on
_BINET = polynomial(
    0.0833333333333247,
    -0.0027777777741478044,
    0.0007936502350255623,
    -0.0005951940509339821,
    0.0008397044994767658,
    -0.0018572365075599667,
    0.005232394023558259,
    -0.013666082299471253,
    0.020602904061321616,
)
_PSI_NEAR = polynomial(  # psi(x) / (x - its zero) of x - 1.625, x from 1 to 2.25
    0.9015925158282158,
    -0.3697749644574108,
    0.19272012460147317,
    -0.10919698588598341,
    0.06426251743228406,
    -0.03855782679418953,
    0.023380439998177318,
    -0.014262521409100235,
    0.00873086619401114,
    -0.005355729366220255,
    0.003289451976545797,
    -0.002021874511389303,
    0.0012431130898277055,
    -0.0007646098423396958,
    0.0004716593508491559,
    -0.00029037098878506107,
    0.00017356288769948563,
    -0.00010631799946539011,
    7.909280958029815e-05,
    -4.953897189420265e-05,
    7.288489767130996e-06,
    -3.5965267462906196e-06,
    2.482732503593241e-05,
    -1.5674012641553853e-05,
)
_PSI_FAR = polynomial(  # x^2 (log(x) - 1 / (2 x) - psi(x)) of 1 / x^2, x from 3.25 on
    0.08333333333329426,
    -0.008333333314725975,
    0.003968250763427938,
    -0.004166384208478459,
    0.007560973188667769,
    -0.020593791966683046,
    0.07186741586264517,
    -0.25506720713759784,
    0.6941322692142758,
    -0.9726400623031075,
)
_TRIGAMMA_NEAR = polynomial(  # tri_gamma(x) of x - 3/2, x from 1 to 2
    0.9348022005446793,
    -0.8287966442343201,
    0.7045455170012297,
    -0.5790416377778622,
    0.4630645250993568,
    -0.36214936502542616,
    0.2780808134891703,
    -0.21030987305185653,
    0.1570531957201936,
    -0.11604072429559774,
    0.08496893186061352,
    -0.06174041993912089,
    0.04456458272702744,
    -0.0319853566032822,
    0.02286153001309365,
    -0.016252309428700266,
    0.011389606288621016,
    -0.008052536061613146,
    0.006176045577369418,
    -0.004297036062666529,
    0.0016545534495973771,
    -0.0012148142661289275,
    0.002911157353347188,
    -0.0019838557834382688,
)
_TRIGAMMA_FAR = polynomial(  # x^3 (tri_gamma(x) - 1 / x - 1 / (2 x^2)) of 1 / x^2, x from 3 on
    0.16666666666665889,
    -0.03333333332733326,
    0.023809522189175706,
    -0.03333311143888104,
    0.07573942671741053,
    -0.2521399191541361,
    1.1302053242098071,
    -6.091478410092074,
    33.86026573895697,
    -165.46240634205438,
    613.989742776677,
    -1468.389223578742,
    1658.3380918791286,
)
_PSI_ZERO, _PSI_ZERO_LOW = 1.4616321449683622, 9.549995429965697e-17


@compiled
def _sine_pi(r: float) -> float:
    """``sin(pi r)`` for ``r`` up to 1/2 in size."""
    z = r * r
    return r * math.pi + r * z * _SINPI(z)


@compiled
def gammaln(x: float) -> float:
    is_reflected = x < -0.2
    w = where(is_reflected, 1.0 - x, x)
    is_tiny, is_below, is_direct, is_near = w < 0.2, w < 1.2, w < 2.5, w < 3.5
    # Up to 3.5 it is gammaln(2 + t) plus or minus log(p); beyond, a series with log(w).
    t = w - where(is_tiny, 0.0, where(is_below, 1.0, where(is_direct, 2.0, 3.0)))
    p = where(is_tiny, abs(w * (w + 1.0)), where(is_below, w, where(is_direct, 1.0, w - 1.0)))
    p = log(where(is_near, p, w))
    near = t * (t + 1.0) * _LGAMMA_NEAR(t + 0.15) + where(is_direct, -p, p)
    inverse = 1.0 / w
    far = (w - 0.5) * (p - 1.0) + (0.4189385332046727 + inverse * _BINET(inverse * inverse))
    y = where(is_near, near, far)
    r = x - nearest_integer(x)
    reflected = -log_of_sum(abs(_sine_pi(r)) * (1.0 / math.pi), 0.0) - y
    reflected = where(r == 0.0, np.inf, reflected)
    y = where(is_reflected, reflected, y)
    return where(x != -np.inf, y, x)  # SciPy's


@compiled
def psi(x: float) -> float:
    is_reflected = x < 0.0
    w = where(is_reflected, 1.0 - x, x)
    is_below, is_direct, is_near = w < 1.0, w < 2.25, w < 3.25
    # One quotient serves the step of the recurrence, up or down, and the series.
    inverse = 1.0 / where(is_near, where(is_direct, w, w - 1.0), w)
    y = where(is_below, w + 1.0, where(is_direct, w, w - 1.0))
    step = where(is_below, -inverse, where(is_direct, 0.0, inverse))
    slope = _PSI_NEAR(y - 1.625)
    near = (y - _PSI_ZERO) * slope + (step - _PSI_ZERO_LOW * slope)
    z = inverse * inverse
    far = log_of_sum(w, 0.0) - (0.5 * inverse + z * _PSI_FAR(z))
    y = where(is_near, near, where(w < np.inf, far, w))
    r = x - nearest_integer(x)
    reflected = y - (1.0 / r + r * _COT(r * r))
    reflected = where(r == 0.0, np.nan, reflected)
    return where(is_reflected, reflected, y)


@compiled
def tri_gamma(x: float) -> float:
    is_reflected = x < 0.0
    w = where(is_reflected, 1.0 - x, x)
    # The recurrence goes up, from 2 to 3 too: one quotient serves 1 / w and 1 / (w + 1).
    is_below, is_direct = w < 1.0, w < 2.0
    is_stepped = (2.0 <= w) & (w < 3.0)
    quotient = 1.0 / where(is_stepped, w * (w + 1.0), w)
    step = where(is_stepped, quotient * (w + 1.0), where(is_below, quotient, 0.0))
    near = _TRIGAMMA_NEAR(where(is_below, w + 1.0, w) - 1.5)
    inverse = where(is_stepped, quotient * w, quotient)
    z = inverse * inverse
    far = inverse + z * (0.5 + inverse * _TRIGAMMA_FAR(z))
    y = where(is_direct, near, far) + step * step
    over = math.pi / _sine_pi(where(x > -np.inf, x - nearest_integer(x), 0.0))
    return where(is_reflected, over * over - y, y)


FUNCTIONS = {f.__name__: f for f in (gammaln, psi, tri_gamma)}
