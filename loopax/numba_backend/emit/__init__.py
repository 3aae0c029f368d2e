"""The emitter: a graph as the source of one native function."""
