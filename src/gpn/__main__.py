"""`gpn` and `python -m gpn`: the command line, where its extra is installed."""

import sys


def main() -> None:
    try:
        from gpn.cli.commands import app
    except ModuleNotFoundError as error:
        sys.exit(f"error: the command line needs {error.name}; try pip install 'gpn[cli]'.")
    app()


if __name__ == "__main__":
    main()
