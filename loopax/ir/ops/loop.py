"""``Loop``: a loop without sequences and traces.

Grammar, with ``k`` states and ``c`` constants::

    inputs   n_steps, k initial states, c constants
    body     [i, k states, c constants] -> [k next states, (stop)]
    outputs  k final states, (n_done, stopped)

It is the last form of a `Scan`, before a backend writes a native loop: rows of a sequence are read at the
index, the buffer of a trace is a state. It keeps the trip count, so that a counted loop is written as one;
for a loop that only stops it is `UNBOUNDED`. It is a Scan, and is run, batched, checked and differentiated
like any other. `scan_to_loop` adds a check that a Scan does itself: that the trip count is not negative.
"""

from __future__ import annotations

from typing import Any

from loopax.ir.ops.scan import Scan


class Loop(Scan):
    """A `Scan` with neither sequences nor traces.

    Parameters
    ----------
    body, n_seqs, n_states, n_ys, stops, options
        The parameters of a `Scan`; see the grammar at the top of the file.

    Raises
    ------
    TypeError
        It has sequences or traces.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from loopax.ir import UNBOUNDED, BodyArgs, BodyOuts, Loop, ScanArgs
    >>> i, x = pt.lscalar(), pt.dscalar()
    >>> halve = Loop.from_body(BodyArgs(i, [], [x], []), BodyOuts([x / 2], [], x / 2 <= 1))
    >>> start = pt.dscalar("start")
    >>> final, n_done, stopped = halve.bind(ScanArgs(UNBOUNDED, [], [start], []))
    >>> final.eval({start: 20.0}), n_done.eval({start: 20.0})
    (array(0.625), array(5))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.n_seqs or self.n_ys:
            raise TypeError(
                f"{self} has states and constants alone, not {self.n_seqs} sequences and {self.n_ys} "
                "traces. Use a Scan; the pass scan_to_loop makes a Loop of it."
            )
