"""Which rows of an array are read or written, along its leading axis."""
