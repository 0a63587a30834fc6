"""The commands whose handler takes a Session, and what COMMAND tells: facts of Redis 7.0."""

from collections.abc import Mapping
from typing import NamedTuple

from quorate_agent.resp.command import Command, Handler, Scope
from quorate_agent.resp.commands.agent import cluster, config, server, slow_log
from quorate_agent.resp.commands.agent.introspection import Introspection
from quorate_agent.resp.commands.keyspace.scan import scan
from quorate_agent.resp.commands.session import connection, pubsub, tracking, transactions
from quorate_agent.resp.replies import wrong_arity


class _Row(NamedTuple):
    name: str  # parent|child for a subcommand
    handler: Handler
    arity: int
    flags: str
    categories: str
    group: str
    since: str
    summary: str
    tips: str = ""
    scope: Scope = Scope.CONNECTION
    key_flags: str = ""  # of all words behind the name, if they are keys


_VARYING = "nondeterministic_output"
_NO_ORDER = "nondeterministic_output_order"
_EVERYWHERE = "request_policy:all_shards"
_OF_ALL = "request_policy:all_nodes"
_SUM = f"{_EVERYWHERE} response_policy:agg_sum"
_ALL_SUCCEED = f"{_EVERYWHERE} response_policy:all_succeeded"

_QUICK = "loading stale fast"
_ALWAYS = "noscript loading stale fast no_auth allow_busy"
_QUIET = "noscript loading stale"
_LISTENS = "pubsub noscript loading stale"
_TELLS = "pubsub loading stale"
_ADMIN = "admin loading stale"
_AT_ONCE = "noscript loading stale fast allow_busy"


def called_alone(_: object, args: list[bytes]) -> bytes:
    """Stand in for a container command without subcommand; its arity is refused before."""
    return wrong_arity(args[0].lower())


# fmt: off
_CONNECTION_ROWS = (
    _Row("ping", connection.ping, -1, "fast", "@connection", "connection", "1.0.0",
         "Tests the connection", _ALL_SUCCEED),
    _Row("echo", connection.echo, 2, _QUICK, "@connection", "connection", "1.0.0",
         "Returns the given message"),
    _Row("quit", connection.quit_, -1, _ALWAYS, "@connection", "connection", "1.0.0",
         "Closes the connection"),
    _Row("hello", connection.hello, -1, _ALWAYS, "@connection", "connection", "6.0.0",
         "Selects the protocol version"),
    _Row("reset", connection.reset, 1, _ALWAYS, "@connection", "connection", "6.2.0",
         "Resets the state of the connection"),
    _Row("select", connection.select, 2, _QUICK, "@connection", "connection", "1.0.0",
         "Selects database 0, the only one"),
    _Row("readonly", connection.readonly, 1, _QUICK, "@connection", "cluster", "3.0.0",
         "Allows reads from replicas on this connection"),
    _Row("readwrite", connection.readwrite, 1, _QUICK, "@connection", "cluster", "3.0.0",
         "Has this connection read from primaries only"),
    _Row("client", called_alone, -2, "", "", "connection", "2.4.0",
         "Container of commands about client connections"),
    _Row("client|id", connection.client_id, 2, _QUIET, "@connection", "connection", "5.0.0",
         "Returns the id of the connection"),
    _Row("client|setname", connection.client_set_name, 3, _QUIET, "@connection", "connection",
         "2.6.9", "Sets the name of the connection"),
    _Row("client|getname", connection.client_get_name, 2, _QUIET, "@connection", "connection",
         "2.6.9", "Returns the name of the connection"),
    _Row("client|setinfo", connection.client_set_info, 4, _QUIET, "@connection", "connection",
         "7.2.0", "Sets the name or version of the client library"),
    _Row("client|maint_notifications", connection.client_maintenance, -3, _QUIET, "@connection",
         "connection", "8.4.0", "Turns push messages about hand-overs on or off"),
    _Row("client|info", connection.client_info, 2, _QUIET, "@connection", "connection", "6.2.0",
         "Returns details of the connection", _VARYING),
    _Row("client|list", connection.client_list, -2, f"admin {_QUIET}", "@connection", "connection",
         "2.4.0", "Lists the open connections", _VARYING),
    _Row("client|tracking", tracking.client_tracking, -3, _QUIET, "@connection", "connection",
         "6.0.0", "Turns client-side caching support on or off"),
    _Row("client|caching", tracking.client_caching, 3, _QUIET, "@connection", "connection",
         "6.0.0", "Says whether to track the keys of the next command"),
    _Row("client|trackinginfo", tracking.client_tracking_info, 2, _QUIET, "@connection",
         "connection", "6.2.0", "Returns the tracking options of the connection"),
    _Row("client|getredir", tracking.client_get_redirection, 2, _QUIET, "@connection",
         "connection", "6.0.0", "Returns the id of the connection that gets invalidations"),
)
_TRANSACTION_ROWS = (
    _Row("multi", transactions.multi, 1, _AT_ONCE, "@transaction", "transactions", "1.2.0",
         "Starts a transaction"),
    _Row("exec", transactions.execute, 1, "noscript loading stale skip_slowlog", "@transaction",
         "transactions", "1.2.0", "Executes the queued commands atomically", "", Scope.MADE),
    _Row("discard", transactions.discard, 1, _AT_ONCE, "@transaction", "transactions", "2.0.0",
         "Discards the transaction"),
    _Row("watch", transactions.watch, -2, _AT_ONCE, "@transaction", "transactions", "2.2.0",
         "Makes EXEC conditional on keys that do not change", "", Scope.MADE, "RO"),
    _Row("unwatch", transactions.unwatch, 1, _AT_ONCE, "@transaction", "transactions", "2.2.0",
         "Forgets all watched keys"),
)
_PUBSUB_ROWS = (
    _Row("subscribe", pubsub.subscribe, -2, _LISTENS, "@pubsub", "pubsub", "2.0.0",
         "Subscribes to channels"),
    _Row("unsubscribe", pubsub.unsubscribe, -1, _LISTENS, "@pubsub", "pubsub", "2.0.0",
         "Unsubscribes from channels"),
    _Row("psubscribe", pubsub.psubscribe, -2, _LISTENS, "@pubsub", "pubsub", "2.0.0",
         "Subscribes to channels by pattern"),
    _Row("punsubscribe", pubsub.punsubscribe, -1, _LISTENS, "@pubsub", "pubsub", "2.0.0",
         "Unsubscribes from patterns"),
    _Row("pubsub", called_alone, -2, "", "", "pubsub", "2.8.0",
         "Container of commands about subscriptions"),
    _Row("pubsub|channels", pubsub.channels, -2, _TELLS, "@pubsub", "pubsub", "2.8.0",
         "Lists the channels with subscribers at this agent"),
    _Row("pubsub|numsub", pubsub.subscriber_counts, -2, _TELLS, "@pubsub", "pubsub", "2.8.0",
         "Counts the subscribers of channels at this agent"),
    _Row("pubsub|numpat", pubsub.pattern_count, 2, _TELLS, "@pubsub", "pubsub", "2.8.0",
         "Counts the subscribed patterns at this agent"),
    _Row("pubsub|shardchannels", pubsub.shard_channels, -2, _TELLS, "@pubsub", "pubsub", "7.0.0",
         "Lists shard channels: always empty"),
    _Row("pubsub|shardnumsub", pubsub.shard_subscriber_counts, -2, _TELLS, "@pubsub", "pubsub",
         "7.0.0", "Counts subscribers of shard channels: always 0"),
)
_SERVER_ROWS = (
    _Row("info", server.info, -1, "loading stale", "@dangerous", "server", "1.0.0",
         "Returns information about this agent",
         f"{_VARYING} {_EVERYWHERE} response_policy:special"),
    _Row("config", called_alone, -2, "", "", "server", "2.0.0",
         "Container of commands about settings"),
    _Row("config|get", config.get, -3, f"admin {_QUIET}", "", "server", "2.0.0",
         "Returns settings by name"),
    _Row("config|set", config.set_, -4, f"admin {_QUIET}", "", "server", "2.0.0",
         "Changes settings of the slow log", f"{_OF_ALL} response_policy:all_succeeded"),
    _Row("slowlog", called_alone, -2, "", "", "server", "2.2.12",
         "Container of commands about the slow log"),
    _Row("slowlog|get", slow_log.get, -2, _ADMIN, "", "server", "2.2.12",
         "Returns the newest entries of the slow log", f"{_OF_ALL} {_VARYING}"),
    _Row("slowlog|len", slow_log.length, 2, _ADMIN, "", "server", "2.2.12",
         "Returns the number of entries in the slow log",
         f"{_OF_ALL} response_policy:agg_sum {_VARYING}"),
    _Row("slowlog|reset", slow_log.reset, 2, _ADMIN, "", "server", "2.2.12",
         "Clears the slow log", f"{_OF_ALL} response_policy:all_succeeded"),
    _Row("slowlog|help", slow_log.help_, 2, "loading stale", "", "server", "6.2.0",
         "Returns how SLOWLOG is called"),
    _Row("time", server.time, 1, _QUICK, "", "server", "2.6.0",
         "Returns the agent's wall-clock time", _VARYING),
    _Row("dbsize", server.key_count, 1, "readonly fast", "@keyspace", "server", "1.0.0",
         "Counts the keys of which this agent is the primary", _SUM),
    _Row("flushall", server.flush, -1, "write", "@keyspace @dangerous", "server", "1.0.0",
         "Deletes the keys of which this agent is the primary", _ALL_SUCCEED, Scope.FLUSH),
    _Row("flushdb", server.flush, -1, "write", "@keyspace @dangerous", "server", "1.0.0",
         "Deletes the keys of which this agent is the primary", _ALL_SUCCEED, Scope.FLUSH),
    _Row("keys", server.list_keys, 2, "readonly", "@keyspace @dangerous", "generic", "1.0.0",
         "Lists the keys that match and of which this agent is the primary",
         f"{_EVERYWHERE} {_NO_ORDER}", Scope.LIST),
    _Row("wait", server.wait, 3, "noscript", "@connection", "generic", "3.0.0",
         "Returns how many replicas hold the connection's writes",
         f"{_EVERYWHERE} response_policy:agg_min",
         Scope.WAIT),
    _Row("scan", scan, -2, "readonly", "@keyspace", "generic", "2.8.0",
         "Iterates over the keys of which this agent is the primary",
         f"{_VARYING} request_policy:special", Scope.SCAN),
    _Row("randomkey", server.random_key, 1, "readonly", "@keyspace", "generic", "1.0.0",
         "Returns a random key of which this agent is the primary",
         f"{_EVERYWHERE} {_VARYING}", Scope.SCAN),
)
_CLUSTER_ROWS = (
    _Row("cluster", called_alone, -2, "", "", "cluster", "3.0.0",
         "Container of commands about the cluster"),
    _Row("cluster|slots", cluster.slots, 2, "stale", "", "cluster", "3.0.0",
         "Maps ranges of slots to nodes", _VARYING),
    _Row("cluster|shards", cluster.shards, 2, "stale", "", "cluster", "7.0.0",
         "Maps shards to slots and nodes", _VARYING),
    _Row("cluster|nodes", cluster.nodes, 2, "stale", "", "cluster", "3.0.0",
         "Lists the nodes of the cluster, one per line", _VARYING),
    _Row("cluster|info", cluster.info, 2, "stale", "", "cluster", "3.0.0",
         "Returns the state of the cluster", _VARYING),
    _Row("cluster|myid", cluster.my_id, 2, "stale", "", "cluster", "3.0.0",
         "Returns the id of this node"),
    _Row("cluster|keyslot", cluster.slot_of_key, 3, "stale", "", "cluster", "3.0.0",
         "Returns the hash slot of a key"),
    _Row("cluster|countkeysinslot", cluster.slot_key_count, 3, "stale", "", "cluster", "3.0.0",
         "Counts the keys in a hash slot", "", Scope.SCAN),
)


def _command_rows(about: Introspection) -> tuple[_Row, ...]:
    return (
        _Row("command", about.all, -1, "loading stale", "@connection", "server", "2.8.13",
             "Container of commands about commands; alone: details of all commands", _NO_ORDER),
        _Row("command|count", about.count, 2, "loading stale", "@connection", "server", "2.8.13",
             "Counts the commands"),
        _Row("command|list", about.names, -2, "loading stale", "@connection", "server", "7.0.0",
             "Lists the names of the commands", _NO_ORDER),
        _Row("command|info", about.info, -2, "loading stale", "@connection", "server", "2.8.13",
             "Returns arities, flags and key positions of commands", _NO_ORDER),
        _Row("command|docs", about.docs, -2, "loading stale", "@connection", "server", "7.0.0",
             "Returns documentation of commands", _NO_ORDER),
        _Row("command|getkeys", about.keys, -4, "loading stale", "@connection", "server",
             "2.8.13", "Extracts the keys from a full command"),
    )
# fmt: on


def plain_commands(table: Mapping[bytes, Command]) -> dict[bytes, Command]:
    """Return the commands by lower-case name; COMMAND describes `table`.

    Subcommands are in their parents."""
    about = _command_rows(Introspection(table))
    rows = (
        *_CONNECTION_ROWS, *_TRANSACTION_ROWS, *_PUBSUB_ROWS, *about, *_SERVER_ROWS, *_CLUSTER_ROWS,
    )  # fmt: skip
    children: dict[str, dict[bytes, Command]] = {}
    for row in rows:
        parent, _, child = row.name.partition("|")
        if child:
            children.setdefault(parent, {})[child.encode()] = _command(row, {})
    return {
        row.name.encode(): _command(row, children.get(row.name, {}))
        for row in rows
        if "|" not in row.name
    }


def _command(row: _Row, subcommands: Mapping[bytes, Command]) -> Command:
    return Command(
        name=row.name.encode(),
        scope=row.scope,
        handler=row.handler,
        arity=row.arity,
        summary=row.summary,
        since=row.since,
        group=row.group,
        flags=tuple(row.flags.split()),
        categories=tuple(row.categories.split()),
        tips=tuple(row.tips.split()),
        first_key=1 if row.key_flags else 0,
        last_key=-1 if row.key_flags else 0,
        step=1 if row.key_flags else 0,
        key_flags=(tuple(row.key_flags.split()),) if row.key_flags else (),
        subcommands=subcommands,
    )
