"""Optional features: each a folder with a record of what it provides."""
