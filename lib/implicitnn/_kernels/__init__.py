"""The engine behind `kernels`: fast passes, tables, and the exact routes that check them."""
