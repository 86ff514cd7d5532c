"""97.5 % quantiles of the standard normal distribution and of Student's t, for 95 % intervals."""

from __future__ import annotations

Z = 1.959964
"""Of the standard normal distribution."""
_T = (
    *(12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281),
    *(2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860),
    *(2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423),
)
"""Of Student's t with 1 to 30 degrees of freedom."""


def t_quantile(degrees: int) -> float:
    """97.5 % quantile of Student's t; above 30 degrees of freedom by the expansion of Cornish and Fisher
    (Abramowitz and Stegun, 26.7.5)."""
    if degrees <= len(_T):
        return _T[degrees - 1]
    terms = (
        (Z**3 + Z) / 4,
        (5 * Z**5 + 16 * Z**3 + 3 * Z) / 96,
        (3 * Z**7 + 19 * Z**5 + 17 * Z**3 - 15 * Z) / 384,
    )
    return Z + terms[0] / degrees + terms[1] / degrees**2 + terms[2] / degrees**3
