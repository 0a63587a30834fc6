"""What clients are told of the zone: every slot, as few ranges as possible, primaries only."""

from quorate_agent.resp.cluster_view import ClusterNode, ClusterView

A = ClusterNode("node-a", "10.0.0.1", 7000)
B = ClusterNode("node-b", "10.0.0.2", 7000)


def test_ranges_cover_every_slot_and_neighbours_of_one_node_are_merged() -> None:
    view = ClusterView(A, (A, B), (0, 0, 1, 1, 1, 0, 0, 0))

    assert view.ranges == ((0, 4095, A), (4096, 10239, B), (10240, 16383, A))


def test_one_partition_per_slot_works_too() -> None:
    view = ClusterView(A, (A, B), (0, 1) * 8192)

    assert len(view.ranges) == 16384
    assert view.slots(False).startswith(b"*16384\r\n*3\r\n:0\r\n:0\r\n")


def test_moved_names_the_slot_and_the_primary() -> None:
    view = ClusterView(A, (A, B), (0, 1))

    assert view.moved(8191) == b"-MOVED 8191 10.0.0.1:7000\r\n"
    assert view.moved(8192) == b"-MOVED 8192 10.0.0.2:7000\r\n"


def test_node_ids_are_forty_hex_digits_and_depend_on_the_name_alone() -> None:
    moved_away = ClusterNode("node-a", "10.0.0.9", 7009)

    assert len(A.id) == 40
    int(A.id, 16)
    assert moved_away.id == A.id != B.id


def test_cluster_nodes_marks_this_node_and_lists_one_without_slots() -> None:
    view = ClusterView(A, (A, B), (0, 0), epoch=7)

    assert view.node_lines(False) == b"$%d\r\n%b\r\n" % (
        len(lines := (
            A.id + b" 10.0.0.1:7000@0 myself,master - 0 0 7 connected 0-16383\n"
            + B.id + b" 10.0.0.2:7000@0 master - 0 0 7 connected\n"
        )),
        lines,
    )  # fmt: skip


def test_cluster_info_says_fail_while_slots_are_not_served() -> None:
    view = ClusterView(A, (A,), (0,))

    assert b"cluster_state:ok\r\n" in view.info(16384, True)
    assert b"cluster_state:fail\r\n" in view.info(8192, True)


def test_replies_are_encoded_once() -> None:
    view = ClusterView(A, (A, B), (0, 1))

    assert view.slots(True) is view.slots(True)
    assert view.slots(True) != view.slots(False)
