"""Powers beside the core: each a folder with a record of what it provides."""
