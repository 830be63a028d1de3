"""The command `gpn`: its commands, the options they share, and what they print. Needs `pip install gpn[cli]`."""
