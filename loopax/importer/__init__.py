"""Conversion of foreign ops to the IR, in every graph."""
