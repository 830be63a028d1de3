"""Columns of any type as numbers: how cells are written, and the encoder. Needs pandas."""
