"""Where clients outside reach agents: by zone and agent a host and a port, which agents tell them.

An agent with an external listener announces its own address (Hello, ZoneReady), or leaves that to
the operator, which knows the Services in front of it.  Hosts are registered with nodes, ports with
zones: agents learn them as all other addresses, by Members and ZoneTable, and a new master has
them.  An address that the operator does not know at present stays as it was last.
Source: docs/protocol.md, section 7.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from quorate.protocol.membership import Agent
from quorate.protocol.messages import Hello

if TYPE_CHECKING:
    from quorate.protocol.master import Master


class ExternalAddresses:
    """The external addresses that the operator has told one master."""

    def __init__(self, master: Master) -> None:
        self._master = master
        self._hosts: dict[str, str] = {}

    def tell(self, hosts: Mapping[str, str], ports: Mapping[str, Mapping[str, int]]) -> None:
        """Take hosts by node, and ports by zone uid and node.  Idempotent."""
        self._hosts.update(hosts)
        for node, host in hosts.items():
            self._master.set_external_host(node, host)
        for uid, by_node in ports.items():
            zone = self._master.zones.get(uid)
            if zone is not None:
                zone.take_external_ports(by_node)

    def greeted(self, agent: Agent, hello: Hello) -> None:
        """An agent greets: it announces its external host, leaves it to the operator, or has no
        external listener (any more)."""
        agent.awaits_external = hello.external_host == ""
        if agent.awaits_external:
            agent.external_host = self._hosts.get(hello.node, agent.external_host)
        else:
            agent.external_host = hello.external_host or ""
