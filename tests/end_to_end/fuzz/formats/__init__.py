"""One harness per format; a module's name is the format's."""
