"""Parts of `datasets`: registry, readers, search and download."""
