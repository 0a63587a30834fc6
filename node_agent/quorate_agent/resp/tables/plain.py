"""The commands whose handler takes a Session, and what COMMAND tells: facts of Redis 7.0."""

from collections.abc import Mapping
from typing import NamedTuple

from quorate_agent.resp.command import Command, Handler, Scope
from quorate_agent.resp.commands import cluster, connection, pubsub, server, tracking, transactions
from quorate_agent.resp.commands.introspection import Introspection
from quorate_agent.resp.commands.scan import scan
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
_SUM = f"{_EVERYWHERE} response_policy:agg_sum"
_ALL_SUCCEED = f"{_EVERYWHERE} response_policy:all_succeeded"

_QUICK = "loading stale fast"
_ALWAYS = "noscript loading stale fast no_auth allow_busy"
_QUIET = "noscript loading stale"
_LISTENS = "pubsub noscript loading stale"
_TELLS = "pubsub loading stale"
_AT_ONCE = "noscript loading stale fast allow_busy"


def called_alone(_: object, args: list[bytes]) -> bytes:
    """Stand in for a container command without subcommand; its arity is refused before."""
    return wrong_arity(args[0].lower())


# fmt: off
_CONNECTION_ROWS = (
    _Row("ping", connection.ping, -1, "fast", "@connection", "connection", "1.0.0",
         "Whether the server answers", _ALL_SUCCEED),
    _Row("echo", connection.echo, 2, _QUICK, "@connection", "connection", "1.0.0",
         "The message itself"),
    _Row("quit", connection.quit_, -1, _ALWAYS, "@connection", "connection", "1.0.0",
         "Close the connection"),
    _Row("hello", connection.hello, -1, _ALWAYS, "@connection", "connection", "6.0.0",
         "Choose the protocol version"),
    _Row("reset", connection.reset, 1, _ALWAYS, "@connection", "connection", "6.2.0",
         "Begin the connection anew"),
    _Row("select", connection.select, 2, _QUICK, "@connection", "connection", "1.0.0",
         "Choose database 0"),
    _Row("readonly", connection.readonly, 1, _QUICK, "@connection", "cluster", "3.0.0",
         "Allow reads from copies"),
    _Row("readwrite", connection.readwrite, 1, _QUICK, "@connection", "cluster", "3.0.0",
         "Ask for reads from primaries"),
    _Row("client", called_alone, -2, "", "", "connection", "2.4.0", "About client connections"),
    _Row("client|id", connection.client_id, 2, _QUIET, "@connection", "connection", "5.0.0",
         "The number of the connection"),
    _Row("client|setname", connection.client_set_name, 3, _QUIET, "@connection", "connection",
         "2.6.9", "Name the connection"),
    _Row("client|getname", connection.client_get_name, 2, _QUIET, "@connection", "connection",
         "2.6.9", "The name of the connection"),
    _Row("client|setinfo", connection.client_set_info, 4, _QUIET, "@connection", "connection",
         "7.2.0", "Say which library the client uses"),
    _Row("client|maint_notifications", connection.client_maintenance, -3, _QUIET, "@connection",
         "connection", "8.4.0", "Be told of hand-overs"),
    _Row("client|info", connection.client_info, 2, _QUIET, "@connection", "connection", "6.2.0",
         "What is known of the connection", _VARYING),
    _Row("client|list", connection.client_list, -2, f"admin {_QUIET}", "@connection", "connection",
         "2.4.0", "What is known of all connections", _VARYING),
    _Row("client|tracking", tracking.client_tracking, -3, _QUIET, "@connection", "connection",
         "6.0.0", "Be told when what was read changes"),
    _Row("client|caching", tracking.client_caching, 3, _QUIET, "@connection", "connection",
         "6.0.0", "Whether what the next command reads is cached"),
    _Row("client|trackinginfo", tracking.client_tracking_info, 2, _QUIET, "@connection",
         "connection", "6.2.0", "What CLIENT TRACKING was told"),
    _Row("client|getredir", tracking.client_get_redirection, 2, _QUIET, "@connection",
         "connection", "6.0.0", "Which connection is told of changes"),
)
_TRANSACTION_ROWS = (
    _Row("multi", transactions.multi, 1, _AT_ONCE, "@transaction", "transactions", "1.2.0",
         "Queue the commands that follow"),
    _Row("exec", transactions.execute, 1, "noscript loading stale skip_slowlog", "@transaction",
         "transactions", "1.2.0", "Run the queued commands of one slot as one", "", Scope.MADE),
    _Row("discard", transactions.discard, 1, _AT_ONCE, "@transaction", "transactions", "2.0.0",
         "Forget the queued commands"),
    _Row("watch", transactions.watch, -2, _AT_ONCE, "@transaction", "transactions", "2.2.0",
         "Let EXEC run only if keys have not changed", "", Scope.MADE, "RO"),
    _Row("unwatch", transactions.unwatch, 1, _AT_ONCE, "@transaction", "transactions", "2.2.0",
         "Watch no key any more"),
)
_PUBSUB_ROWS = (
    _Row("subscribe", pubsub.subscribe, -2, _LISTENS, "@pubsub", "pubsub", "2.0.0",
         "Be told what is published to channels"),
    _Row("unsubscribe", pubsub.unsubscribe, -1, _LISTENS, "@pubsub", "pubsub", "2.0.0",
         "Be told of channels no more"),
    _Row("psubscribe", pubsub.psubscribe, -2, _LISTENS, "@pubsub", "pubsub", "2.0.0",
         "Be told what is published to channels that match"),
    _Row("punsubscribe", pubsub.punsubscribe, -1, _LISTENS, "@pubsub", "pubsub", "2.0.0",
         "Be told of channels that match no more"),
    _Row("pubsub", called_alone, -2, "", "", "pubsub", "2.8.0", "About subscriptions"),
    _Row("pubsub|channels", pubsub.channels, -2, _TELLS, "@pubsub", "pubsub", "2.8.0",
         "Channels that somebody has subscribed to here"),
    _Row("pubsub|numsub", pubsub.subscriber_counts, -2, _TELLS, "@pubsub", "pubsub", "2.8.0",
         "How many have subscribed to each channel here"),
    _Row("pubsub|numpat", pubsub.pattern_count, 2, _TELLS, "@pubsub", "pubsub", "2.8.0",
         "How many patterns are subscribed to here"),
    _Row("pubsub|shardchannels", pubsub.shard_channels, -2, _TELLS, "@pubsub", "pubsub", "7.0.0",
         "Shard channels with subscribers: there are none"),
    _Row("pubsub|shardnumsub", pubsub.shard_subscriber_counts, -2, _TELLS, "@pubsub", "pubsub",
         "7.0.0", "How many have subscribed to each shard channel: nobody"),
)
_SERVER_ROWS = (
    _Row("info", server.info, -1, "loading stale", "@dangerous", "server", "1.0.0",
         "Facts about this agent", f"{_VARYING} {_EVERYWHERE} response_policy:special"),
    _Row("config", called_alone, -2, "", "", "server", "2.0.0", "About settings"),
    _Row("config|get", server.config_get, -3, f"admin {_QUIET}", "", "server", "2.0.0",
         "Settings by name"),
    _Row("time", server.time, 1, _QUICK, "", "server", "2.6.0", "The wall clock", _VARYING),
    _Row("dbsize", server.key_count, 1, "readonly fast", "@keyspace", "server", "1.0.0",
         "How many keys this agent is primary of", _SUM),
    _Row("flushall", server.flush, -1, "write", "@keyspace @dangerous", "server", "1.0.0",
         "Delete the keys this agent is primary of", _ALL_SUCCEED, Scope.FLUSH),
    _Row("flushdb", server.flush, -1, "write", "@keyspace @dangerous", "server", "1.0.0",
         "Delete the keys this agent is primary of", _ALL_SUCCEED, Scope.FLUSH),
    _Row("keys", server.list_keys, 2, "readonly", "@keyspace @dangerous", "generic", "1.0.0",
         "The keys this agent is primary of that match", f"{_EVERYWHERE} {_NO_ORDER}", Scope.LIST),
    _Row("wait", server.wait, 3, "noscript", "@connection", "generic", "3.0.0",
         "How many copies hold the last write", f"{_EVERYWHERE} response_policy:agg_min",
         Scope.WAIT),
    _Row("scan", scan, -2, "readonly", "@keyspace", "generic", "2.8.0",
         "The keys this agent is primary of", f"{_VARYING} request_policy:special", Scope.SCAN),
    _Row("randomkey", server.random_key, 1, "readonly", "@keyspace", "generic", "1.0.0",
         "Some key this agent is primary of", f"{_EVERYWHERE} {_VARYING}", Scope.SCAN),
)
_CLUSTER_ROWS = (
    _Row("cluster", called_alone, -2, "", "", "cluster", "3.0.0", "About the zone"),
    _Row("cluster|slots", cluster.slots, 2, "stale", "", "cluster", "3.0.0",
         "Which node serves which slots", _VARYING),
    _Row("cluster|shards", cluster.shards, 2, "stale", "", "cluster", "7.0.0",
         "Which slots each node serves", _VARYING),
    _Row("cluster|nodes", cluster.nodes, 2, "stale", "", "cluster", "3.0.0",
         "The nodes of the zone, a line each", _VARYING),
    _Row("cluster|info", cluster.info, 2, "stale", "", "cluster", "3.0.0",
         "The state of the zone", _VARYING),
    _Row("cluster|myid", cluster.my_id, 2, "stale", "", "cluster", "3.0.0", "The id of this node"),
    _Row("cluster|keyslot", cluster.slot_of_key, 3, "stale", "", "cluster", "3.0.0",
         "The slot of a key"),
    _Row("cluster|countkeysinslot", cluster.slot_key_count, 3, "stale", "", "cluster", "3.0.0",
         "How many keys a slot has"),
)


def _command_rows(about: Introspection) -> tuple[_Row, ...]:
    return (
        _Row("command", about.all, -1, "loading stale", "@connection", "server", "2.8.13",
             "About the commands", _NO_ORDER),
        _Row("command|count", about.count, 2, "loading stale", "@connection", "server", "2.8.13",
             "How many commands there are"),
        _Row("command|list", about.names, -2, "loading stale", "@connection", "server", "7.0.0",
             "The names of the commands", _NO_ORDER),
        _Row("command|info", about.info, -2, "loading stale", "@connection", "server", "2.8.13",
             "Arities, flags and keys of commands", _NO_ORDER),
        _Row("command|docs", about.docs, -2, "loading stale", "@connection", "server", "7.0.0",
             "Summaries of commands", _NO_ORDER),
        _Row("command|getkeys", about.keys, -4, "loading stale", "@connection", "server",
             "2.8.13", "The keys of a call"),
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
