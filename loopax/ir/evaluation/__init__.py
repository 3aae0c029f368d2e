"""The reference evaluation of graphs, with nothing compiled."""
