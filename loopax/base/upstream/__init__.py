"""One adapter for each library whose internals loopax uses."""
