"""The identity of nodes: names, stores, incarnations, addresses, failure domains.

A node is (name, store, incarnation). `store` is drawn when the data folder is created and
identifies the data; `incarnation` counts the process starts over that folder. A node with a new
store is a different voter: what its old store acknowledged or promised does not count for it.
`process` is drawn at random by every process, because a copied folder counts its starts like the
original: two processes can have the same incarnation of the same store.
"""

import msgspec


class Voter(msgspec.Struct, frozen=True, array_like=True, order=True):
    """A member of a partition's quorum: a node with the store that holds the promises."""

    node: str
    store: str


class Holder(msgspec.Struct, frozen=True, array_like=True):
    """One process incarnation of one store. A term belongs to one holder."""

    node: str
    store: str
    incarnation: int


class Happening(msgspec.Struct, frozen=True, array_like=True):
    """A change of the topology: a node joined, or left.

    - `revision`: numbers the changes of a cluster; a later one has a higher number.
    - `age_ms`: how long ago it was when this was stored, counted on masters' boot clocks. The time
      without a master is not counted, so the age is never too high.
    - `wall_ms`: of a leave, the registration's `left_since_ms` that belongs to it; 0: a join. A
      version that does not know of revisions changes only that.
    """

    revision: int
    age_ms: int = 0
    wall_ms: int = 0


STORAGE_PROFILES = ("disk", "memory")
"""Kinds of storage that an agent offers if it is not told which."""


LAST_WORD = "process "
"""How the termination message of an agent's container begins; `NodeRecord.process` follows."""


class PodFacts(msgspec.Struct, frozen=True, array_like=True):
    """Facts that the operator knows of an agent's pod, of the pod's node and of its volume.

    - `of_pod`: the pod's labels. `of_node`: those of its node; None: not known.
    - `storage_class`: of the volume; empty: it is of none; None: not known.
    - `node`: the name of the pod's node; empty: it is on none.
    """

    of_pod: dict[str, str]
    of_node: dict[str, str] | None = None
    storage_class: str | None = None
    node: str = ""


class NodeRecord(msgspec.Struct, frozen=True, array_like=True):
    """The registration of one agent in the metastore.

    - `host` and `peer_port`: where other agents and the master dial it.
    - `client_host`: the host that clients are told. `external_host`: the one that clients of its
      external listener are told; empty: none.
    - `left_since_ms`: wall time at which it left; None while it is online.
    - `since`: when it joined or, if it is away, when it left; None: a version wrote the record that
      did not know of revisions.
    - `draining`: it is to hold no copies, until that is taken back or the record is removed.
    - `client_ports`: first and last of the ports from which the master gives each zone one; None:
      the agent chooses.
    - `attributes`: names and values by which filters of zones choose nodes. `storage_profiles`: the
      kinds of storage that it offers. `pod`: what the operator told of its pod, which both include.
    - `frame_format`: the frame format that it speaks with the master; 3: unknown.
    - `ended`: it is proven that the process of this incarnation has ended.
    - `unrecorded`: uids of zones of which the store may have data without a record: those that had
      none when its data was first compared with the records, once this store was registered (None:
      that is still to be done), and the last ones that were deleted since.
    """

    name: str
    store: str
    incarnation: int
    host: str
    peer_port: int
    client_host: str
    failure_domain: str = ""
    weight: int = 1
    left_since_ms: int | None = None
    process: str = ""
    draining: bool = False
    client_ports: tuple[int, int] | None = None
    external_host: str = ""
    since: Happening | None = None
    attributes: dict[str, str] = {}
    storage_profiles: tuple[str, ...] = STORAGE_PROFILES
    pod: PodFacts | None = None
    frame_format: int = 3
    ended: bool = False
    unrecorded: tuple[str, ...] | None = None

    def as_told(self) -> "NodeRecord":
        """Return the registration as agents are told it: they choose no data nodes."""
        return msgspec.structs.replace(
            self,
            since=None,
            attributes={},
            storage_profiles=STORAGE_PROFILES,
            pod=None,
            frame_format=3,
            unrecorded=None,
        )

    def zone_store(self, persistent: bool) -> str:
        """Return the store id of this node's copies. Memory is a new store with every process.

        After the end of a process its node has none in memory, and no row names what stands here.
        """
        memory = f"{self.store}.{self.incarnation}"
        return self.store if persistent else f"{memory}.ended" if self.ended else memory

    def holder(self, persistent: bool) -> Holder:
        """Return this incarnation as the holder of a term."""
        return Holder(self.name, self.zone_store(persistent), self.incarnation)
