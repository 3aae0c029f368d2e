"""Equality saturation: all forms of a program under rules in one e-graph, and the cheapest of them.

`optimize.py` is the pass. It needs the package egglog, the extra ``egraph``.
"""

from loopax.base.extensions import Extension

EXTENSION = Extension("egraph", {"optimizer": "loopax.extensions.egraph.optimize:optimizer"})
