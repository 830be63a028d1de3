"""How unlike the labeled rows of a table a row is: distances, synthetic outliers, and trees that join them."""
