"""The folder of a development cluster, which holds all its files.

cluster.json                 which cluster this is: written by the first `quorate dev up`
secrets/CLUSTER.json         the secret by which the cluster's processes authenticate each other
lock                         held while a command changes the cluster
operator/                    the operator's own folder (metastore.sqlite, operator.json)
operator.log  operator.pid   its log; its pid with the moment it started
agents/NAME/data/            the agent's own folder (identity, zones, agent.json)
agents/NAME/agent.log  agent.pid
spark/                       temporary files of commands that read copies or exports
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from quorate_cli.processes.process import Started, is_alive, lock_holder, read_started
from quorate_cli.terminal.problem import Problem, words
from quorate_cli.terminal.written_file import write_file
from quorate_link.secret import SecretRefused, make_secret

FORMAT_VERSION = 1
DEFAULT_FOLDER = Path(".quorate")
FOLDER_VARIABLE = "QUORATE_FOLDER"
"""The environment's variable that names another folder, where no option does."""
ERROR_LOG = "quorate-error.log"
"""The file for tracebacks, which no user should see."""
DEMO_MARK = "demo.mark"
"""Present in every folder that a demo made for itself: a demo empties no other folder."""
OPERATOR = "operator"
"""The operator process's name in commands; no agent can have it."""


OWN_FILES = ("cluster.json", "operator.log", "operator.pid", ERROR_LOG, "lock")
NOT_STRANGE = (ERROR_LOG, DEMO_MARK, "lock")
SECRETS = "secrets"
WORK = "spark"
OWN_FOLDERS = (OPERATOR, "agents", WORK, SECRETS)


class AgentEntry(msgspec.Struct, frozen=True):
    """One agent of the cluster.

    `peer_port` is kept once known, so that a restarted node is found at its earlier port; 0 before
    the first start.  `forgotten`: it is being removed: its copies are elsewhere, and the operator
    was told to forget it.
    """

    name: str
    peer_port: int = 0
    forgotten: bool = False


class ClusterEntry(msgspec.Struct, frozen=True):
    """The content of cluster.json.

    `next_number` names the next agent.  No name is used twice, because the data of a removed agent
    must never be taken for another's.  `path`: the folder at the last `up`, by which a copied
    folder is known; empty if an earlier version wrote the file.
    """

    format: int
    cluster: str
    agents: tuple[AgentEntry, ...]
    next_number: int
    client_port_base: int
    debug_commands: bool
    path: str = ""


class AgentAddress(msgspec.Struct, frozen=True):
    """The address that a listening agent writes to agent.json."""

    pid: int
    name: str
    host: str
    peer_port: int
    admin_port: int


class OperatorAddress(msgspec.Struct, frozen=True):
    """The address that a listening operator writes to operator.json."""

    pid: int
    api_port: int


class _KeptIdentity(msgspec.Struct, frozen=True):
    """The part of an agent's folder.json that is needed here."""

    cluster_id: str = ""


class ClusterFolder:
    """The paths in one cluster's folder, and the content of its small files."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._is_locked = False

    # --- which cluster ---------------------------------------------------------------------------

    def exists(self) -> bool:
        """Return whether a cluster was made here."""
        return self._entry_file.exists()

    def read(self) -> ClusterEntry:
        """Return the cluster's entry; raise Problem if there is none or it is another version's."""
        try:
            data = self._entry_file.read_bytes()
        except FileNotFoundError:
            raise self._no_cluster() from None
        except OSError as error:
            raise Problem(
                f"{self._entry_file} cannot be read: {words(error)}; run this as the user whose"
                " cluster it is, or name another folder with --folder"
            ) from error
        try:
            found = msgspec.json.decode(data, type=dict[str, object]).get("format")
            if found != FORMAT_VERSION:
                raise Problem(
                    f"{self._entry_file}: format is {found!r}, this version needs"
                    f" {FORMAT_VERSION}: use the version that created the folder, or name another"
                    " folder with --folder"
                )
            return msgspec.json.decode(data, type=ClusterEntry)
        except msgspec.MsgspecError as error:
            raise Problem(
                f"{self._entry_file} is damaged ({error}): restore it, or name another folder with"
                " --folder"
            ) from error

    def _no_cluster(self) -> Problem:
        return Problem(
            f"folder {self.path} has no cluster: create one with `quorate dev up`, or name another"
            " folder with --folder"
        )

    def write(self, entry: ClusterEntry) -> None:
        """Store the entry."""
        write_file(self._entry_file, msgspec.json.format(msgspec.json.encode(entry)) + b"\n")

    def check_free(self) -> None:
        """Raise Problem unless a new cluster may be made here: no folder, or an empty one."""
        if not self.path.exists() or self.exists():
            return
        if not self.path.is_dir():
            raise Problem(f"{self.path} is a file: name a folder with --folder")
        found = sorted(path.name for path in self.path.iterdir() if path.name not in NOT_STRANGE)
        # Other clusters of the same project may have their folders inside (the demo does).
        strange = [name for name in found if not (self.path / name / "cluster.json").exists()]
        if strange:
            raise Problem(
                f"folder {self.path} is not the folder of a cluster and is not empty (it contains"
                f" {strange[0]}): name another folder with --folder"
            )

    def delete(self) -> None:
        """Delete the cluster's files, and the folder if nothing else is in it."""
        self.read()
        for name in OWN_FOLDERS:
            with suppress(FileNotFoundError):
                shutil.rmtree(self.path / name)
        # Last: until then, what could not be deleted still belongs to a cluster.
        for name in OWN_FILES:
            (self.path / name).unlink(missing_ok=True)
        with suppress(OSError):  # the folder may hold other things
            self.path.rmdir()

    def left(self) -> list[str]:
        """Return the names of what is in the folder: of a deleted cluster, what was not its own."""
        return sorted(path.name for path in self.path.iterdir()) if self.path.exists() else []

    @property
    def _entry_file(self) -> Path:
        return self.path / "cluster.json"

    @contextmanager
    def locked(self, *, may_be_new: bool = False) -> Iterator[None]:
        """Let one command at a time change the cluster; `may_be_new`: this command may make it.

        A command of several steps locks around them; each step's own lock is then that one.  Where
        the command is refused because of the folder, nothing is written into it.
        """
        if self._is_locked:
            yield
            return
        if may_be_new:
            self.check_free()
        elif not self.exists():
            raise self._no_cluster()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            raise Problem(f"{self.path} is a file: name a folder with --folder") from None
        except OSError as error:
            raise Problem(
                f"folder {self.path} cannot be written: {words(error)}; name another folder with"
                " --folder"
            ) from error
        try:
            if not take_lock(lock):
                raise Problem(
                    f"folder {self.path}: another `quorate dev` command is using it: wait until"
                    " that ends"
                )
            self._is_locked = True
            yield
        finally:
            self._is_locked = False
            os.close(lock)

    # --- processes -------------------------------------------------------------------------------

    def data(self, name: str) -> Path:
        """Return the process's own folder."""
        return self.path / OPERATOR if name == OPERATOR else self.path / "agents" / name / "data"

    @property
    def token_file(self) -> Path:
        """The file of the token that the operator asks for."""
        return self.data(OPERATOR) / "api-token"

    @property
    def work(self) -> Path:
        """The folder for temporary files of commands that read copies or exports."""
        return self.path / WORK

    @property
    def secrets(self) -> Path:
        """The folder of the secrets of all clusters that this operator leads."""
        return self.path / SECRETS

    def secret_file(self, cluster: str) -> Path:
        """Return the file of one cluster's secret."""
        return self.secrets / f"{cluster}.json"

    def made_secret(self, cluster: str) -> Path:
        """Return the file of one cluster's secret, made for a new cluster.

        Raises Problem if it cannot be used, or is missing although agents keep data under it.
        """
        file = self.secret_file(cluster)
        if not file.exists() and (kept := self._kept_cluster_id()):
            raise Problem(
                f"{file} is missing, the secret of cluster {cluster}, whose clusterId is {kept}:"
                " restore it; if it is lost, stop everything by `quorate dev down`, write the file"
                f' {{"clusterId": "{kept}", "key": "…"}} with 64 digits of `openssl rand -hex 32`'
                " as the key, make it private by `chmod 600`, then `quorate dev up`"
            )
        try:
            make_secret(file)
        except SecretRefused as refused:
            raise Problem(str(refused)) from refused
        return file

    def _kept_cluster_id(self) -> str:
        """Return the clusterId under which agents keep data here; empty if none does."""
        for file in sorted(self.path.glob("agents/*/data/folder.json")):
            with suppress(OSError, msgspec.MsgspecError):  # its agent will refuse to start
                kept = msgspec.json.decode(file.read_bytes(), type=_KeptIdentity).cluster_id
                if kept:  # earlier versions had no secret
                    return kept
        return ""

    def log(self, name: str) -> Path:
        """Return the log file of a process."""
        if name == OPERATOR:
            return self.path / "operator.log"
        return self.path / "agents" / name / "agent.log"

    def pid_file(self, name: str) -> Path:
        """Return the file that holds the pid and start of a process."""
        return self.log(name).with_suffix(".pid")

    def lock(self, name: str) -> Path:
        """Return the file whose lock the running process holds, with its pid in it."""
        return self.data(name) / ("operator.lock" if name == OPERATOR else "lock")

    def process(self, name: str) -> Started | None:
        """Return the process as it was last started; None if it is not running.

        Without its pid file it is found by the lock of its data folder.  Otherwise nothing could
        stop it, and no second process could be started beside it.
        """
        process = read_started(self.pid_file(name))
        # A copied folder contains the pid files of the original's processes.
        if process is not None and process.folder == str(self.path) and is_alive(process):
            return process
        return lock_holder(self.lock(name), str(self.path))

    def found(self) -> list[str]:
        """Return the operator and the agents that have files here, also without an entry."""
        agents = sorted(path.name for path in self.path.glob("agents/*") if path.is_dir())
        return [OPERATOR, *agents]

    def set_aside(self, name: str) -> list[str]:
        """Return one sentence for each earlier store that an agent keeps: where and why."""
        kept = sorted(self.data(name).glob("set-aside-*/reason.txt"))
        return [
            f"{name}: data of an earlier store is set aside in {file.parent}:"
            f" {file.read_text(errors='replace').strip()}"
            for file in kept
        ]

    def agent_address(self, name: str) -> AgentAddress | None:
        """Return where the running agent listens; None if it does not (yet)."""
        process = self.process(name)
        try:
            data = (self.data(name) / "agent.json").read_bytes()
            address = msgspec.json.decode(data, type=AgentAddress)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None
        return address if process is not None and address.pid == process.pid else None

    def operator_address(self) -> OperatorAddress | None:
        """Return where the running operator listens; None if it does not (yet)."""
        process = self.process(OPERATOR)
        try:
            data = (self.data(OPERATOR) / "operator.json").read_bytes()
            address = msgspec.json.decode(data, type=OperatorAddress)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None
        return address if process is not None and address.pid == process.pid else None


def take_lock(descriptor: int) -> bool:
    """Lock an open file or folder until it is closed; return False if it is locked already."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
