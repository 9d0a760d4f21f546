"""Detection layers of SSD: default boxes, MultiBoxLoss, DetectionOutput and DetectionEvaluate."""
