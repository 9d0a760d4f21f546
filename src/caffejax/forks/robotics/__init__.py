"""Layer types of cbfinn/caffe, for learning visuomotor policies of robots."""
