"""Lazy derivatives: rewrites of them, and their expansion to graphs."""
