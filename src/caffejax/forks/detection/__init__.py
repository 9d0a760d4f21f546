"""Detection layers of SSD: prior boxes, the loss for training, the selection of detections, and their evaluation."""
