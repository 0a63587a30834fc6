"""The place of an export: a folder, or a prefix of a bucket, by pyarrow's file systems.

`TARGET` is a path or a URI:

    /backups/library
    file:///backups/library
    s3://bucket/library?region=eu-central-1&endpoint_override=minio:9000&scheme=http

Credentials are never in it (quorate.facts.export_place).  They come from the environment or the
files that the provider's own tools read (AWS_ACCESS_KEY_ID, ~/.aws/credentials, …).

In a folder, files are for their owner alone, and so is the folder if an export makes it.
"""

import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from secrets import token_hex
from typing import Any, NamedTuple

from quorate.facts.errors import QuorateError
from quorate.facts.export_place import PlaceRefused, parse_place

HALF = ".half"
"""The end of the name of a file that is being written, of which a lost process may leave some."""
REQUEST_S, CONNECT_S = 60.0, 10.0
REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
"""If one of them is set, the library finds the region by itself, or the store is another one."""


class TargetRefused(QuorateError):
    """The place cannot be used; the message is a sentence with the way out."""


class TargetUnreadable(TargetRefused):
    """A file cannot be read now, as far as is known: this says nothing about what is in it."""


class FileThere(NamedTuple):
    """A file of the target: its name within it, and its size."""

    name: str
    bytes: int


class Target:
    """A folder of files without subfolders.  All errors of storage are TargetRefused."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._fs, self._path = _opened(text)

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.text.partition("?")[0].rstrip("/").rpartition("/")[2]

    def beside(self, name: str) -> "Target":
        """Return the folder of this name beside this one."""
        path, mark, options = self.text.partition("?")
        return Target(f"{path.rstrip('/').rpartition('/')[0]}/{name}{mark}{options}")

    def remove(self) -> None:
        """Remove the folder, if it is there.  Raises TargetRefused if it has files."""
        if self.files():
            raise TargetRefused(f"{self.text} cannot be removed: it has files again")
        with self._named("cannot be removed"), suppress(FileNotFoundError):
            if self._is_local:
                os.rmdir(self._path)
            else:  # the mark of a folder, where there is one
                self._fs.delete_dir(self._path)

    def files(self) -> list[FileThere]:
        """Return all files, sorted by name; a folder in it counts as a file named with a slash."""
        from pyarrow.fs import FileSelector, FileType

        with self._named("cannot be listed"):
            found = self._fs.get_file_info(FileSelector(self._path, allow_not_found=True))
        return sorted(
            FileThere(each.base_name + ("" if each.type == FileType.File else "/"), each.size or 0)
            for each in found
        )

    def make(self) -> None:
        """Make the folder, where there are folders."""
        if self._is_local:
            with self._named("cannot be made"):
                os.makedirs(self._path, mode=0o700, exist_ok=True)

    def sizes(self, names: Iterable[str]) -> dict[str, int]:
        """Return the size of each of these files that is there.

        A folder may be shared with the machines that wrote them, whose latest files a listing may
        lack for a minute, as on NFS: each is opened.  Object stores list what is there.
        """
        if not self._is_local:
            listed = {each.name: each.bytes for each in self.files()}
            return {name: listed[name] for name in names if name in listed}
        found: dict[str, int] = {}
        with self._named("has files that cannot be read"):
            for name in names:
                with suppress(FileNotFoundError), open(self._at(name), "rb") as file:
                    found[name] = os.fstat(file.fileno()).st_size
        return found

    def delete(self, names: Iterable[str]) -> None:
        """Delete these files, if they are there, whether a listing of a folder has them or not."""
        there = set() if self._is_local else {each.name for each in self.files()}
        with self._named("has files that cannot be deleted"):
            for name in names:
                if self._is_local:
                    with suppress(FileNotFoundError):
                        os.unlink(self._at(name))
                elif name in there:
                    self._fs.delete_file(self._at(name))

    def read(self, name: str) -> bytes | None:
        """Return the contents of a file; None if there is none."""
        try:
            with (
                self._named(f"{name} cannot be read", TargetUnreadable),
                self._fs.open_input_stream(self._at(name)) as file,
            ):
                return bytes(file.read())
        except _NotThere:
            return None

    def write_last(self, name: str, data: bytes) -> None:
        """Write a small file that is there whole or not at all, also after a loss of power.

        Raises TargetRefused if it is there already.  In an object store two writers at the same
        moment may both succeed; then the later file stays.
        """
        with self._named(f"{name} cannot be written"):
            if self._is_local:
                half = self._at(f"{name}.{token_hex(4)}{HALF}")
                try:
                    with os.fdopen(_created(half), "wb") as file:
                        file.write(data)
                    _sync(half)
                    _link(half, self._at(name))
                except FileExistsError as error:
                    raise self._taken(name) from error
                finally:
                    with suppress(FileNotFoundError):
                        os.unlink(half)
                _sync(self._path)
            elif name in {each.name for each in self.files()}:
                raise self._taken(name)
            else:
                # Object stores show an object when it is complete.
                with self._fs.open_output_stream(self._at(name)) as file:
                    file.write(data)

    @contextmanager
    def writing(self, name: str) -> Iterator[Any]:
        """Yield a file to write to; it is durable at the end."""
        with self._named(f"{name} cannot be written"):
            if self._is_local:
                os.close(_created(self._at(name)))
            with self._fs.open_output_stream(self._at(name)) as file:
                yield file
            if self._is_local:
                _sync(self._at(name))

    @contextmanager
    def reading(self, name: str) -> Iterator[Any]:
        """Yield a file to read at any position.  Raises TargetRefused if there is none.

        TargetUnreadable is raised for each OSError: pyarrow has it for lost connections, and for
        some damaged contents, too.
        """
        try:
            with (
                self._named(f"{name} cannot be read", TargetUnreadable),
                self._fs.open_input_file(self._at(name)) as file,
            ):
                yield file
        except _NotThere as error:
            raise TargetRefused(f"{self.text}: {name} is missing") from error

    @property
    def _is_local(self) -> bool:
        return bool(self._fs.type_name == "local")

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}"

    def _taken(self, name: str) -> TargetRefused:
        return TargetRefused(
            f"{self.text} has {name} by now, which another export has written: name another place"
        )

    @contextmanager
    def _named(self, what: str, kind: type[TargetRefused] = TargetRefused) -> Iterator[None]:
        import pyarrow as pa

        try:
            yield
        except FileNotFoundError as error:
            raise _NotThere(f"{self.text}: {what}: it is not there") from error
        except (OSError, pa.ArrowException) as error:
            raise kind(f"{self.text}: {what}: {first_line(error)}") from error


class _NotThere(TargetRefused):
    pass


def _opened(text: str) -> tuple[Any, str]:
    """Return pyarrow's file system for `text`, and the path in it."""
    import pyarrow as pa
    from pyarrow import fs

    try:
        place = parse_place(text)
    except PlaceRefused as error:
        raise TargetRefused(str(error)) from error
    if not place.scheme:
        return fs.LocalFileSystem(), os.path.abspath(text)
    try:
        if place.scheme == "s3":
            options: dict[str, str] = dict(place.options)
            said = {"region", "endpoint_override"} & {*options}
            if not said and not any(os.environ.get(each) for each in REGION_VARIABLES):
                options.update(region_of(place.bucket))
            made = fs.S3FileSystem(**options, connect_timeout=CONNECT_S, request_timeout=REQUEST_S)
            return made, f"{place.bucket}{place.path}".rstrip("/")
        made, path = fs.FileSystem.from_uri(text)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise TargetRefused(f"{text}: {first_line(error)}") from error
    return made, path.rstrip("/")


@cache
def region_of(bucket: str) -> Mapping[str, str]:
    """Return the option that says the region of a bucket of AWS; empty: it cannot be found.

    The library does not ask for it, and takes us-east-1 where nothing says another one: requests
    to a bucket elsewhere then fail.
    """
    import pyarrow as pa
    from pyarrow import fs

    try:
        return {"region": fs.resolve_s3_region(bucket)}
    except (OSError, pa.ArrowException):
        return {}


def first_line(error: Exception) -> str:
    """Return the first line of what an error says; its type's name if it says nothing."""
    text = str(getattr(error, "strerror", None) or error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def _created(path: str) -> int:
    """Open a file to write to that, if it is new, its owner alone can read."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)


def _link(half: str, path: str) -> None:
    """Give a file its name.  Raises FileExistsError if that is taken."""
    try:
        os.link(half, path)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        # A file system without links, as of some memory sticks: not proof against two at once.
        if os.path.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from error
        os.rename(half, path)


def _sync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
