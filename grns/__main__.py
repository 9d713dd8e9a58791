"""`python -m grns` is `grns`."""

from grns.cli import main

if __name__ == "__main__":
    main()
