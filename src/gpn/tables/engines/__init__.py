"""Models of tables for other engines: batches, folders, fits over partitions, and ONNX."""
