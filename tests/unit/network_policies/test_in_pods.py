"""Connections of pods out of the kernel's tables of their networks."""

from pathlib import Path

from quorate_network_policies.in_pods import Connection, PodConnections

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid inode\n"
LISTENS, ESTABLISHED, TIME_WAIT = "0A", "01", "06"
ANY = "00000000:0000"
POD, AGENT, OPERATOR = "0581C90A", "0681C90A", "0781C90A"
"""10.201.129.5 to .7, as the kernel writes them."""
LOOPBACK = "0100007F"


def _process(proc: Path, number: int, pod: str, group: str, *rows: tuple[str, str, str]) -> None:
    folder = proc / str(number)
    (folder / "net").mkdir(parents=True)
    (folder / "cgroup").write_text(f"3:pids:/{group}/kubepods/burstable/pod7/c1\n")
    (folder / "environ").write_bytes(b"PATH=/bin\0HOSTNAME=%s\0" % pod.encode())
    lines = [f"   0: {local} {remote} {state} 0:0 0:0 0 0 0 17" for local, remote, state in rows]
    (folder / "net/tcp").write_text(HEAD + "".join(f"{each}\n" for each in lines))


def test_a_connection_is_told_with_where_its_other_side_listens(tmp_path: Path) -> None:
    _process(
        tmp_path,
        12,
        "nightly-validation-x",
        "quorate-201-1",
        (f"{ANY}", ANY, LISTENS),
        (f"{POD}:1F90", ANY, LISTENS),
        (f"{POD}:C001", f"{AGENT}:1BBC", ESTABLISHED),
        (f"{POD}:1F90", f"{OPERATOR}:C002", TIME_WAIT),
        (f"{LOOPBACK}:C003", f"{LOOPBACK}:C004", ESTABLISHED),
    )
    watched = PodConnections("quorate-201", tmp_path)

    watched.look()

    assert watched.seen == {
        Connection("nightly-validation-x", True, "10.201.129.6", 7100),
        Connection("nightly-validation-x", False, "10.201.129.7", 8080),
    }


def test_what_had_ended_before_is_left_out(tmp_path: Path) -> None:
    """Such as a command that a test before ran in a pod: the kernel has it for a minute."""
    _process(
        tmp_path,
        12,
        "a-pod",
        "quorate-201-1",
        (f"{POD}:1F90", ANY, LISTENS),
        (f"{POD}:C001", f"{AGENT}:1BBC", ESTABLISHED),
        (f"{POD}:C002", f"{OPERATOR}:18EB", TIME_WAIT),
    )

    with PodConnections("quorate-201", tmp_path) as watched:
        watched.look()
        assert watched.seen == {Connection("a-pod", True, "10.201.129.6", 7100)}

    table = tmp_path / "12/net/tcp"
    table.write_text(table.read_text() + f"   0: {POD}:1F90 {OPERATOR}:C009 {TIME_WAIT} 0:0\n")
    watched.look()
    assert Connection("a-pod", False, "10.201.129.7", 8080) in watched.seen


def test_processes_of_other_clusters_and_of_no_pod_are_left_out(tmp_path: Path) -> None:
    row = (f"{POD}:C001", f"{AGENT}:1BBC", ESTABLISHED)
    _process(tmp_path, 12, "a-pod", "quorate-202-1", row)
    _process(tmp_path, 13, "a-pod", "quorate-2011-1", row)
    _process(tmp_path, 14, "the-machine", "quorate-201-1", row)
    (tmp_path / "14/cgroup").write_text("3:pids:/quorate-201-1/system\n")
    (tmp_path / "net").mkdir()
    watched = PodConnections("quorate-201", tmp_path)

    watched.look()

    assert watched.seen == set()


def test_a_process_that_ends_between_two_looks_is_forgotten(tmp_path: Path) -> None:
    row = (f"{POD}:C001", f"{AGENT}:1BBC", ESTABLISHED)
    _process(tmp_path, 12, "a-pod", "quorate-201-1", row)
    watched = PodConnections("quorate-201", tmp_path)
    watched.look()
    (tmp_path / "12/net/tcp").unlink()

    watched.look()

    assert watched.seen == {Connection("a-pod", True, "10.201.129.6", 7100)}
