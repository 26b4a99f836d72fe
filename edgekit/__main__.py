"""``python -m edgekit``."""

from edgekit._entry import main

if __name__ == "__main__":
    main()
