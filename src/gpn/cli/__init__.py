"""The command `gpn`. Needs `pip install gpn[cli]`."""
