"""The story of a zone that only one agent knows, and that this one cannot open when it is asked."""

from quorate_sim.scenario import Scenario


def rebuilding_waits_for_an_agent_that_refuses_its_zone() -> None:
    """The metastore is lost.  The only owner returns without room for the zone, and is lost again;
    the other agent is a new one."""
    story = Scenario(agents=1, replicas=1)
    owner = story.primary
    story.written(owner, b"x", b"1")

    story.cluster.masters[-1].die()
    story.crash(owner)
    story.cluster.metastore.lose(story.cluster.disks[owner].master_term)
    story.cluster.disks[owner].refuses.add("zone")
    story.start(owner)
    story.cluster.add_agent("a2")
    story.cluster.add_master()
    cores = [story.agent(name).core for name in (owner, "a2")]
    story.wait(lambda: all(core.registered for core in cores), "both take part")
    story.run(2_000)
    story.crash(owner)
    story.run(5_000)

    row = story.cluster.committed_row("zone", 0)
    assert row is None, f"placed as if it were new, for {owner} has not told of it: {row}"
    story.cluster.disks[owner].refuses.clear()
    story.start(owner)
    assert story.read(story.wait_for_primary(), b"x") == b"1"
    story.come_to_rest()
