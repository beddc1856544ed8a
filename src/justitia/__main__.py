"""``justitia`` and ``python -m justitia``: the command line, which is as quiet about Ctrl-C at its start as later."""

import sys

#: Of :data:`justitia.cli.errors.INTERRUPTED`, which is not imported yet when it is first needed.
INTERRUPTED = 130


def main() -> None:
    """Entry point of the command line."""
    try:
        from justitia.cli import main as run  # noqa: PLC0415 - an interrupt may come while it is imported
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    run()


if __name__ == "__main__":
    main()
