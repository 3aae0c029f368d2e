"""Loop fission and vectorization: computations that feed no state become operations on all rows."""
