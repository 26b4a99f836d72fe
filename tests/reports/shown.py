"""What rich lays out, as text."""

import io

from rich.console import RenderableType

from edgekit.cli.console import PlainConsole, Unpadded


def shown(page: RenderableType, width: int = 80) -> str:
    """Returns a page without colours, as a console of so many columns prints it."""
    out = io.StringIO()
    PlainConsole(file=Unpadded(out), width=width, markup=False).print(page, crop=False)
    return out.getvalue()
