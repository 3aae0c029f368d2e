"""Whatever `jaxify` accepts becomes a `Program`."""
