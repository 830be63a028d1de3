"""What some methods are made of: member networks, weight priors, bounded layers, grids, chains."""
