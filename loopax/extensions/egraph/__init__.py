"""Equality saturation: all equivalent forms of a program in one e-graph, and extraction of the cheapest.

`optimize.py` is the pass. It needs the package egglog, the extra ``egraph``.
"""

from loopax.base.extensions import Extension

EXTENSION = Extension("egraph", {"optimizer": "loopax.extensions.egraph.optimize:optimizer"})
