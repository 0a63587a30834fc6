"""The executors of a run, as the operator tells them to the program that leads them.

It is told in a variable of its environment, which images of earlier versions ignore: these do the
whole run in one pod.
"""

from typing import Any

import msgspec

from quorate.facts.errors import WireError

EXECUTORS_VARIABLE = "QUORATE_EXECUTORS"
"""The environment variable that has it."""
POD_VARIABLE = "QUORATE_POD"
NAMESPACE_VARIABLE = "QUORATE_NAMESPACE"
ADDRESS_VARIABLE = "QUORATE_ADDRESS"
"""Variables with the name, the namespace and the address of the program's own pod."""
EXECUTOR_CONTAINER = "executor"
DRIVER_PORT = 7078
BLOCKS_PORT = 7079
"""Ports of the leading pod to which its executors connect.  Executors have the second one, too."""
EXECUTORS_MAX = 100
CORES_MAX = 64
EXECUTOR_FOLDER = "/work"
EXECUTOR_SECRET = "/secret"
"""Where an executor has its own folder, and the cluster's secret."""
VALUE_BYTES_MAX = 100 * 1024
"""Bytes that the variable may have: a process does not start with one of 128 KiB."""
MEMORY_MIN = 1 << 30


class Executors(msgspec.Struct, frozen=True):
    """The pods beside the leading one: their number, and what each is made of.

    `cpu`: a quantity, and `memory`: bytes, that each requests.  `template`: a Pod, in
    which Spark fills in what it needs.
    """

    instances: int
    cores: int
    cpu: str
    memory: int
    image: str
    template: dict[str, Any]

    @property
    def failures_max(self) -> int:
        """So many may end by themselves within an hour; after one more the run is given up."""
        return max(2 * self.instances, 3)

    @property
    def at_once(self) -> int:
        """Tasks that run at the same time."""
        return self.instances * self.cores


def encode_executors(executors: Executors) -> str:
    """Return the value of the variable."""
    return msgspec.json.encode(executors).decode()


def decode_executors(value: str) -> Executors:
    """Return what the variable tells.  Raises WireError."""
    try:
        return msgspec.json.decode(value, type=Executors)
    except msgspec.MsgspecError as error:
        raise WireError(f"not executors as this version reads them: {error}") from error
