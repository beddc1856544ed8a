"""``python -m justitia``: the command line without its script."""

from justitia.cli import main

if __name__ == "__main__":
    main()
