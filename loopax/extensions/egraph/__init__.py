"""Equality saturation: all that rules make of a program in one e-graph, and the cheapest of it taken.

`optimize.py` is the pass. It needs the package egglog, the extra ``egraph``.
"""

from loopax.base.extensions import Extension

EXTENSION = Extension("egraph", {"optimizer": "loopax.extensions.egraph.optimize:optimizer"})
