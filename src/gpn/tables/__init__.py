"""Models of tables: columns of any kind in, predictions with the row index out."""
