"""Graph analyses for passes, other than lengths and rows."""
