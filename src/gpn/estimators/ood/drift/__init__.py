"""Whether new rows, and labels that come late, still look like those of the fit."""
