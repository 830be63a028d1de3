"""Models of tables: columns of any type in, predictions with the row index out. Needs pandas."""
