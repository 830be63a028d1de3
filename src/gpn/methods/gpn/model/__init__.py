"""Section 4 of the paper: generator, codes, anchors and the objective of one step."""
