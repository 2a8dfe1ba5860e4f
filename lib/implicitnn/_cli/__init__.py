"""The commands of `python -m implicitnn`."""
