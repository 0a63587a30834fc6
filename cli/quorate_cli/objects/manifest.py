"""Reads the objects that a user's YAML or JSON files declare, and checks them."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from quorate.wire.schema.names import API_VERSION
from quorate_cli.objects.resources import KINDS, Kind, Whole
from quorate_cli.terminal.problem import Problem, words


class Manifest(NamedTuple):
    """One declared object; `place`: where it was read, for error messages."""

    kind: Kind
    name: str
    body: Whole
    place: str


def read_manifests(files: Sequence[Path]) -> list[Manifest]:
    """Return the objects declared in `files`, in order.  `-` is standard input.  Raises Problem."""
    found: list[Manifest] = []
    for file in files:
        try:
            text = sys.stdin.read() if str(file) == "-" else file.read_text()
        except OSError as error:
            raise Problem(f"-f {file} cannot be read: {words(error)}") from error
        except UnicodeDecodeError as error:
            raise Problem(f"-f {file} is not text in UTF-8: name a YAML or JSON file") from error
        found.extend(parse_manifests(text, str(file)))
    if not found:
        raise Problem(f"-f {', '.join(map(str, files))}: there are no objects in it")
    _check_names(found)
    return found


def _check_names(manifests: Sequence[Manifest]) -> None:
    """Raise Problem if an object is declared twice: one declaration would undo the other."""
    places: dict[tuple[str, str], str] = {}
    for manifest in manifests:
        what = manifest.kind.name, manifest.name
        if what in places:
            raise Problem(
                f"{manifest.place}: {manifest.kind.singular} {manifest.name!r} is declared in"
                f" {places[what]} already: leave one of them out, or give it another name"
            )
        places[what] = manifest.place


def parse_manifests(text: str, place: str) -> list[Manifest]:
    """Return the objects declared in `text`, which was read from `place`.  Raises Problem."""
    try:
        documents = [document for document in yaml.safe_load_all(text) if document is not None]
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise Problem(f"{place}{line}: not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise Problem(f"{place}: not YAML: {error}") from error
    except ValueError as error:  # such as an unquoted date that does not exist
        raise Problem(f"{place}: a value cannot be read: {error}; write it in quotes") from error
    except RecursionError as error:
        raise Problem(f"{place}: not an object: its values are nested too deeply") from error
    return [
        _manifest(document, place if len(documents) == 1 else f"{place}, document {number}")
        for number, document in enumerate(documents, 1)
    ]


def _manifest(document: object, place: str) -> Manifest:
    if not isinstance(document, dict):
        raise Problem(f"{place}: {document!r:.60} is not an object: it needs apiVersion, kind, …")
    version = document.get("apiVersion")
    if version != API_VERSION:
        raise Problem(f"{place}: apiVersion is {version!r}: write {API_VERSION}")
    kind = next((kind for kind in KINDS if kind.name == document.get("kind")), None)
    if kind is None:
        known = " or ".join(kind.name for kind in KINDS)
        raise Problem(f"{place}: kind is {document.get('kind')!r}: write {known}")
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    if not isinstance(name, str) or not name:
        raise Problem(f"{place}: metadata.name is {name!r}: give the {kind.singular} a name")
    return Manifest(kind, name, document, place)
