"""Parts of `design`: one module for each family and target."""
