"""What passes ask of a graph, apart from lengths and rows."""
