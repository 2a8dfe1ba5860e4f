"""What the networks of finite width are built from: arrays, iterations, layers, readouts."""
