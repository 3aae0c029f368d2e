"""loopax beside hand-written JAX, in one process. `python -m benchmarks`."""
