"""The command line: `python -m implicitnn --help`."""

from implicitnn._cli.parser import main

if __name__ == "__main__":
    raise SystemExit(main())
