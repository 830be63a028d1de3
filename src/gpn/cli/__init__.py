"""The command `gpn`: commands, their options, and what they print. Needs `pip install gpn[cli]`."""
