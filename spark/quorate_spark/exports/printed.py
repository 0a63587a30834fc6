"""The result of an import, as people read it."""

from rich.console import Console
from rich.text import Text

from quorate_spark.exports.import_zone import Imported


def print_imported(imported: Imported, target: str, console: Console) -> None:
    """Print how the rows of a zone compare with the export at `target`."""
    zone = imported.zone
    if imported.is_whole:
        rows = f"{imported.rows:,}"
        if imported.rows == imported.exported_rows:
            text = f"Zone {zone} has all rows of {target}: {rows} compared one by one."
        else:
            text = f"Zone {zone} has {rows} rows of {target} as exported, compared one by one."
        console.print(Text(text, "yellow" if imported.kept else "green"), soft_wrap=True)
        if imported.digest == imported.exported_digest:
            console.print(Text(f"digest {imported.digest}, as exported"), soft_wrap=True)
    elif not imported.missing and not imported.differing:
        text = (
            f"Zone {zone} has all rows of {target} but {imported.kept:,}, whose keys had another"
            " row.  If these are to stay, import again with --into-non-empty."
        )
        console.print(Text(text, "red"), soft_wrap=True)
    else:
        text = f"Zone {zone} is not as {target}: {imported.rows:,} rows are equal."
        console.print(Text(text, "red"), soft_wrap=True)
    for count, what in (
        (imported.expired, "rows have expired since the export"),
        (imported.kept, "keys had another row already, which was left as it was"),
        (imported.missing, "rows are missing: deleted meanwhile, or lost"),
        (imported.differing, "keys have another row than in the export"),
        (imported.others, "keys of the zone are not in the export"),
    ):
        if count:
            console.print(Text(f"{count:,} {what}"), soft_wrap=True)
    if not imported.told_apart:
        text = "More keys had another row than are remembered: which of them differ for another"
        console.print(Text(f"{text} reason is not known"), soft_wrap=True)
    for key in imported.keys:
        console.print(Text(f"  {key}"), soft_wrap=True)
