"""Array contraction: only the rows of a trace that are read are kept."""
