"""Features of x: layers, trunks, and encodings of numbers."""
