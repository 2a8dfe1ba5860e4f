"""Deep equilibrium models: kernels, deterministic equivalents, matched explicit networks."""
