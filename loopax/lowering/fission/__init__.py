"""Loop fission and vectorization: computations that no state needs become operations on all rows."""
