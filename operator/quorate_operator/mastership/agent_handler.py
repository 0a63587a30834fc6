"""Takes what the links to one cluster's agents bring: greetings, messages, ends, refusals."""

from collections.abc import Callable
from typing import Protocol

from quorate.protocol.master.master import Master
from quorate.protocol.messages.handshake import Hello, RefusalCode, Refused
from quorate.protocol.messages.master import Greet
from quorate.protocol.messages.message import Message
from quorate_link import BaseHandler, Link
from quorate_operator.mastership.agent_links import AgentLinks
from quorate_operator.mastership.agent_refusals import AgentRefusals, judge
from quorate_operator.mastership.dialing import Dialing
from quorate_operator.mastership.guarded import ends_with_a_defect
from quorate_operator.process.clock import Clock


class Leader(Protocol):
    """The leader of the cluster that these agents belong to."""

    master: Master | None

    def may_act(self) -> bool:
        """Return whether this process may act at this moment."""

    def step(self, act: Callable[[Master], object]) -> None:
        """Have the master take one input."""

    def overtaken(self, refused: Refused) -> None:
        """End: an agent knows another mastership of this number, or a later one."""

    def fail(self, error: BaseException) -> None:
        """End after a defect."""


class AgentHandler(BaseHandler):
    """Handles what a leader's endpoint receives; a defect in it ends the leader."""

    def __init__(
        self,
        leader: Leader,
        links: AgentLinks,
        refusals: AgentRefusals,
        dialing: Dialing,
        clock: Clock,
    ) -> None:
        self._leader = leader
        self._links = links
        self._refusals = refusals
        self._dialing = dialing
        self._clock = clock

    def fail(self, error: BaseException) -> None:
        """See guarded.Failing."""
        self._leader.fail(error)

    @ends_with_a_defect
    def on_up(self, link: Link, hello: Hello) -> None:
        """Accept the agent, or refuse it and end the link."""
        refused = judge(hello, self._links.by_node, self._leader.master)
        if refused is not None:
            self._links.refuse(link, refused)
            return
        self._refusals.forget(link)
        self._dialing.reached(link, hello.node)
        self._links.take(link, hello.node, self._clock.now().boot_ms)
        self._leader.step(lambda master: master.agent_connected(hello, self._clock.now()))

    @ends_with_a_defect
    def on_message(self, link: Link, message: Message) -> None:
        """Hand the message to the master, unless the node has a newer link."""
        now = self._clock.now()
        node = self._links.heard(link, now.boot_ms)
        if node is not None:
            self._leader.step(lambda master: master.receive(node, message, now))

    @ends_with_a_defect
    def on_down(self, link: Link, refused: Refused | None) -> None:
        """Tell the master that the agent is disconnected, and whether its process has ended."""
        if refused is not None:
            self._take_refusal(link, refused)
        node = self._links.ended(link)
        if node is not None:
            # A goodbye counts like a host that refuses connections.
            gone = refused is not None and refused.code == RefusalCode.GOODBYE
            self._leader.step(
                lambda master: master.agent_disconnected(node, gone, self._clock.now())
            )

    @ends_with_a_defect
    def on_gone(self, link: Link) -> None:
        """Tell the master that the agent's host refuses connections."""
        node = link.data
        if node is not None and node not in self._links.by_node:
            self._leader.step(
                lambda master: master.agent_disconnected(node, True, self._clock.now())
            )

    @ends_with_a_defect
    def on_refused(self, link: Link, refused: Refused) -> None:
        """Note why the agent refuses this master."""
        self._take_refusal(link, refused)

    def _take_refusal(self, link: Link, refused: Refused) -> None:
        self._refusals.note(link, refused.reason)
        if refused.code == RefusalCode.STALE_MASTER and self._leader.may_act():
            self._leader.overtaken(refused)
        if refused.code == RefusalCode.TERM_AHEAD and self._leader.may_act():
            self._have_it_greeted(link)

    def _have_it_greeted(self, link: Link) -> None:
        """Have every agent that obeys this mastership greet the agent that refuses its term."""
        master = self._leader.master
        if master is not None and link.peer is not None:
            self._links.send_to_all(Greet(master.master_term, *link.peer.address))
