"""Files of weights and training states: Caffe's formats, .npz, .safetensors, and checkpoints of orbax."""
