"""`scan`, `cond` and their kin: nodes of the IR from Python functions."""
