"""The tests; `checked` is the run-time type checker that the import hook in conftest applies."""

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
