"""Lazy derivatives: their rewrites, and their computation."""
