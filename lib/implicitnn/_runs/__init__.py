"""Parts of `sweeps`: rows on disk, hashes of code, parallel runs, studies."""
