"""What makes CPUs fast: oneDNN kernels, frozen nets, their cache, settings of the process."""
