"""Parts of `mixtures`, `equivalents` and `spectra`."""
