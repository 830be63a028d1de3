"""Regenerates every table and figure; imports gpn, never the reverse."""
