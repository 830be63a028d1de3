"""Model files of every released version, and the answers that they must still give."""
