"""Makes `python -m angarium` the same as the console script."""

from angarium.cli import main

if __name__ == "__main__":
    main()
