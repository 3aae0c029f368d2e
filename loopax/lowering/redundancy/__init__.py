"""Passes that leave out what is computed without need: dead, twice, zero, or again at every step."""
