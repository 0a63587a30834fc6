"""The option `--version`."""

from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer


def own_version() -> str:
    """Return the version of what is installed."""
    try:
        return version("quorate")
    except PackageNotFoundError:  # a checkout that is not installed
        return "(not installed)"


def _tell_version(asked: bool) -> None:
    if asked:
        typer.echo(f"quorate {own_version()}")
        raise typer.Exit


VersionOption = Annotated[
    bool,
    typer.Option(
        "--version", "-V", callback=_tell_version, is_eager=True, help="Print the version and exit."
    ),
]
