"""The command `gpn`: its commands, and what they print. Needs `pip install gpn[cli]`."""
