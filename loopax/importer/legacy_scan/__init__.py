"""`pytensor.scan`'s Scan as the IR's."""
