"""Who the nodes are: names, stores, incarnations, addresses, failure domains.

A node is (name, store, incarnation).  `store` is made when the data folder is created and names
the data; `incarnation` counts the starts of the process over that folder.  A node whose store is
new is a different voter: what its old store acknowledged or promised does not count for it.
`process` is drawn at random by every process: a copy of a folder counts its starts like the
original, so two processes can have the same incarnation of the same store.
"""

import msgspec


class Voter(msgspec.Struct, frozen=True, array_like=True, order=True):
    """A member of a partition's quorum: a node with the very store that holds the promises."""

    node: str
    store: str


class Holder(msgspec.Struct, frozen=True, array_like=True):
    """One process incarnation of one store: what a term is bound to."""

    node: str
    store: str
    incarnation: int


class NodeRecord(msgspec.Struct, frozen=True, array_like=True):
    """What the metastore holds of one agent.

    `host`/`peer_port` is where other agents and the master dial it, `client_host` what clients
    are told, `external_host` what clients of its external listener are told (empty: nothing).
    `left_since_ms` is wall time, None while the node is online.  `draining`: it is to
    hold nothing, until that is taken back or the record is removed.  `client_ports`: the first and
    the last of the ports of which the master gives each zone one; None: the agent chooses.
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

    def zone_store(self, persistent: bool) -> str:
        """The store id this node's copies live in: memory is new with every process."""
        return self.store if persistent else f"{self.store}.{self.incarnation}"

    def holder(self, persistent: bool) -> Holder:
        """This incarnation as the holder of a term."""
        return Holder(self.name, self.zone_store(persistent), self.incarnation)
