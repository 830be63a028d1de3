"""The Neural Testbed (Osband et al. 2022), from its definitions: problems, score and agents."""
