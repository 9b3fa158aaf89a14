"""`python -m autopipe`: the same as the command `autopipe`."""

from autopipe.cli.main import main

if __name__ == "__main__":
    main()
