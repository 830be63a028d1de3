"""Which pool rows a GPN sees, and with which weight."""
