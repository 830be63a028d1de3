"""How fast gpn is: ratios of two things that are measured in turn in one process."""
