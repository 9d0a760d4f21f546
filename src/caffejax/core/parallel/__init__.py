"""Training on several devices and processes: the device mesh, sharded arrays and communication of processes."""
