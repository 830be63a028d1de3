"""The suite of shifts: how well detectors tell known rows of a table from shifted ones."""
