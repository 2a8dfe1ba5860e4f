"""Numerics behind `gaussian`, `activations` and `specs`."""
