"""Loop fission and vectorization: what feeds no state becomes an operation on all rows."""
