"""Caffe models as JAX programs: prototxt, graph, pure functions, one jitted program, solver, checkpoints."""
