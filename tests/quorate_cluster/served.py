"""The claim that clients were served all the time, although something changed."""

from collections.abc import Collection, Iterable

from quorate_cluster.cluster import Cluster


class NotServed(AssertionError):
    """Somebody was refused, followed or kept waiting although nobody was hurt."""


def assert_served(
    cluster: Cluster, problems: Collection[object], *, ended: Iterable[str] = ()
) -> None:
    """`problems` is empty: nobody was refused, or followed by another.

    Behind all other claims of a test and outside of its `with` blocks: a machine that stood still
    can break this one, so there it is not judged (`machine_standstills`).  A process that ended by
    itself (`ended`: by the test) or said a traceback fails the test on any machine.
    """
    for process in cluster.processes:
        assert process.name in ended or process.is_alive(), process.log_tail(20)
        assert "Traceback" not in process.log.read_text(), process.name
    if problems:
        raise NotServed(f"nobody was hurt, and yet: {problems!r}")
