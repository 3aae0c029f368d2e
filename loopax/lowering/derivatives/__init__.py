"""Derivatives that are not taken yet: what is rewritten about them, and how they are taken."""
