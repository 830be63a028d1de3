"""How unlike the labeled rows of a table a new row is: distances, outliers, and their trees."""
