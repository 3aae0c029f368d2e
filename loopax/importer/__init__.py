"""Foreign ops -> the IR, in every graph, whoever has made it."""
