"""Features of x: layers, trunks, encodings of numbers, and frozen networks."""
