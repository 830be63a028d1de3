"""Twenty regression tables: a GPN, and what users would pick instead."""
