"""Array contraction: what is kept of a trace, where not all of it is read."""
