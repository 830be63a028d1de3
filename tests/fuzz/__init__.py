"""Damaged files for every reader: only our own errors come out, in little time and memory.

`mutate` damages bytes, `formats` damages what they mean, `images`, `models` and `tables` hold small
valid files of every kind and how they are read, `drive` runs them in a process of its own.
"""
