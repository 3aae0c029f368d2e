"""Passes that leave out what is computed without need: dead, twice, zero, or at every step anew."""
