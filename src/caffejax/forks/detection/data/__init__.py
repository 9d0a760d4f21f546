"""The AnnotatedData layer of the SSD fork: images with boxes, their databases and their augmentation."""
