"""Private parts of :mod:`implicitnn.infinite_depth`."""
