"""``python -m adahb`` is the ``adahb`` command."""

from adahb.cli import main

if __name__ == "__main__":
    main()
