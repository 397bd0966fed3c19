"""Table definitions, the same on SQLite and PostgreSQL, with what their columns mean."""

from __future__ import annotations

import sqlalchemy as sa

HEAD = "0001"
"""The newest migration; a test holds it against the files in `migrations/versions`."""

meta = sa.MetaData()

_id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

# `ready_at` not null: someone should look here then; cleared in the transaction that saw nothing waiting.
# `epoch` is the fence: each claim, /stop and /new raises it, and a write under an older one is refused.
# `attempt` counts claims since the transcript last grew; `started` names the ONCE call that may have run.
# `note_seq` is the summary that the transcript begins with, 0 without one, `kept_seq` the first entry that
# the model still sees; `wants_note` not null: a person asked for a summary, in which this is to be kept.
# `footer` says how much of what a reply took stands below it.
conversation = sa.Table(
    "conversation",
    meta,
    sa.Column("id", _id, primary_key=True),
    sa.Column("address", sa.Text, nullable=False, unique=True),
    sa.Column("chat", sa.Text, nullable=False),
    sa.Column("ready_at", sa.Double),
    sa.Column("lease_owner", sa.Text),
    sa.Column("lease_until", sa.Double, nullable=False, server_default="0"),
    sa.Column("epoch", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
    sa.Column("next_seq", sa.BigInteger, nullable=False, server_default="1"),
    sa.Column("session", sa.Integer, nullable=False, server_default="1"),
    sa.Column("turn", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("started", sa.Text),
    sa.Column("note_seq", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("kept_seq", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("wants_note", sa.Text),
    sa.Column("footer", sa.Text, nullable=False, server_default="off"),
    sa.Column("created_at", sa.Double, nullable=False),
)
sa.Index(
    "conversation_ready",
    conversation.c.ready_at,
    sqlite_where=conversation.c.ready_at.is_not(None),
    postgresql_where=conversation.c.ready_at.is_not(None),
)

# `seq` null: not yet in the transcript; 0: never will be (a command, or cleared by /stop).
# `wakes` false: talk beside the bot, taken in as context by the next message that wakes it.
# `hold_until`: more of the same may come. `prepare` not null: its files are still to be fetched, and then
# it is held for that many seconds.
inbound = sa.Table(
    "inbound",
    meta,
    sa.Column("id", _id, primary_key=True),
    sa.Column("key", sa.Text, nullable=False, unique=True),
    sa.Column("message_key", sa.Text, unique=True),
    sa.Column("conversation_id", sa.ForeignKey("conversation.id"), nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("wakes", sa.Boolean, nullable=False, server_default=sa.true()),
    sa.Column("hold_until", sa.Double),
    sa.Column("prepare", sa.Double),
    sa.Column("seq", sa.BigInteger),
    sa.Column("turn", sa.BigInteger),
)
sa.Index(
    "inbound_prepare",
    inbound.c.id,
    sqlite_where=inbound.c.prepare.is_not(None),
    postgresql_where=inbound.c.prepare.is_not(None),
)
sa.Index(
    "inbound_waiting",
    inbound.c.conversation_id,
    inbound.c.id,
    sqlite_where=inbound.c.seq.is_(None),
    postgresql_where=inbound.c.seq.is_(None),
)
sa.Index("inbound_turn", inbound.c.conversation_id, inbound.c.turn)

# The transcript, which is also the journal of a running turn.
entry = sa.Table(
    "entry",
    meta,
    sa.Column("conversation_id", sa.ForeignKey("conversation.id"), primary_key=True),
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("session", sa.Integer, nullable=False),
    sa.Column("turn", sa.BigInteger, nullable=False),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("usage", sa.Text),
    sa.Column("at", sa.Double, nullable=False),
)

# `state`: pending -> sending -> sent | unknown | dead. The rows of one address leave in the order of `id`.
# `unknowns` counts deliveries whose fate can't be known, `attempts` the failed ones.
outbound = sa.Table(
    "outbound",
    meta,
    sa.Column("id", _id, primary_key=True),
    sa.Column("key", sa.Text, nullable=False, unique=True),
    sa.Column("address", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("on_unknown", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False, server_default="pending"),
    sa.Column("attempts", sa.Integer),
    sa.Column("unknowns", sa.Integer, nullable=False, server_default="0"),
    sa.Column("due_at", sa.Double, nullable=False),
    sa.Column("lease_owner", sa.Text),
    sa.Column("lease_until", sa.Double, nullable=False, server_default="0"),
    sa.Column("receipt", sa.Text),
    sa.Column("problem", sa.Text),
    sa.Column("at", sa.Double, nullable=False),
)
_open = outbound.c.state.in_(("pending", "sending"))
sa.Index("outbound_open", outbound.c.address, outbound.c.id, sqlite_where=_open, postgresql_where=_open)
_pending = outbound.c.state == "pending"
sa.Index("outbound_due", outbound.c.due_at, outbound.c.id, sqlite_where=_pending, postgresql_where=_pending)
_sending = outbound.c.state == "sending"
sa.Index("outbound_sending", outbound.c.lease_until, sqlite_where=_sending, postgresql_where=_sending)
sa.Index("outbound_address", outbound.c.address, outbound.c.id)

# What the bot was asked to do by the clock. `address`: the chat that asked, which it belongs to;
# `level`: what the person who asked was allowed to do, and so what its runs are.
# `trigger` is JSON; `session`: isolated | current; `delivery`: announce | none.
# `state`: active | paused | off, `problem` says why it is off; `next_at` is not null while it will fire.
# `retry`: the slot that is tried again at `next_at`, for the `attempt`-th time; `failures` are in a row.
schedule = sa.Table(
    "schedule",
    meta,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("address", sa.Text, nullable=False),
    sa.Column("chat", sa.Text, nullable=False),
    sa.Column("sender", sa.Text, nullable=False),
    sa.Column("level", sa.Text, nullable=False, server_default=""),
    sa.Column("trigger", sa.Text, nullable=False),
    sa.Column("zone", sa.Text, nullable=False),
    sa.Column("prompt", sa.Text, nullable=False),
    sa.Column("session", sa.Text, nullable=False, server_default="isolated"),
    sa.Column("delivery", sa.Text, nullable=False, server_default="announce"),
    sa.Column("state", sa.Text, nullable=False, server_default="active"),
    sa.Column("problem", sa.Text, nullable=False, server_default=""),
    sa.Column("next_at", sa.Double),
    sa.Column("retry", sa.Text),
    sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
    sa.Column("failures", sa.Integer, nullable=False, server_default="0"),
    sa.Column("alerted_at", sa.Double),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.UniqueConstraint("address", "name"),
)
sa.Index(
    "schedule_due",
    schedule.c.next_at,
    sqlite_where=schedule.c.next_at.is_not(None),
    postgresql_where=schedule.c.next_at.is_not(None),
)

# Each firing of a schedule, also of one that is gone. `key` is the inbound row's: a slot fires once.
# `status`: running | ok | failed | stopped | skipped | missed; `replies`: what its messages' keys begin with.
schedule_run = sa.Table(
    "schedule_run",
    meta,
    sa.Column("id", _id, primary_key=True),
    sa.Column("schedule_id", sa.Text, nullable=False),
    sa.Column("key", sa.Text, nullable=False, unique=True),
    sa.Column("slot", sa.Text, nullable=False),
    sa.Column("due_at", sa.Double, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("ended_at", sa.Double),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("tokens", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("replies", sa.Text, nullable=False, server_default=""),
    sa.Column("problem", sa.Text, nullable=False, server_default=""),
)
sa.Index("schedule_run_schedule", schedule_run.c.schedule_id, schedule_run.c.id)
_running = schedule_run.c.status == "running"
sa.Index("schedule_run_running", schedule_run.c.id, sqlite_where=_running, postgresql_where=_running)

# Each heartbeat that was due, and what became of it. `slot` is its planned local time: whoever inserts it
# fires it. `status`: running -> ok | alert | repeat | failed; or skipped, with the reason. `at` and
# `ended` are wall time. `checklist` and `signature` (of an alert) are digests.
# `replies`: what the keys of its messages begin with.
beat = sa.Table(
    "beat",
    meta,
    sa.Column("id", _id, primary_key=True),
    sa.Column("slot", sa.Text, nullable=False, unique=True),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False, server_default=""),
    sa.Column("ended", sa.Double),
    sa.Column("tokens", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("target", sa.Text, nullable=False, server_default=""),
    sa.Column("checklist", sa.Text, nullable=False, server_default=""),
    sa.Column("signature", sa.Text, nullable=False, server_default=""),
    sa.Column("replies", sa.Text, nullable=False, server_default=""),
)

# What model calls used, one row for all of a local day with the same keys. `sender` is `channel:person`,
# "" for the bot itself; `input` holds `cached` and `cache_write`, too; `unpriced`: the tokens not in `usd`.
usage = sa.Table(
    "usage",
    meta,
    sa.Column("day", sa.Text, primary_key=True),
    sa.Column("agent", sa.Text, primary_key=True),
    sa.Column("address", sa.Text, primary_key=True),
    sa.Column("model", sa.Text, primary_key=True),
    sa.Column("sender", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("calls", sa.BigInteger, nullable=False),
    sa.Column("input", sa.BigInteger, nullable=False),
    sa.Column("output", sa.BigInteger, nullable=False),
    sa.Column("cached", sa.BigInteger, nullable=False),
    sa.Column("cache_write", sa.BigInteger, nullable=False),
    sa.Column("unpriced", sa.BigInteger, nullable=False),
    sa.Column("usd", sa.Double, nullable=False),
)

# Calls that wait for a person. `seq`: the entry that makes the call, as ids of calls may come again.
# `address`: where the question stands; `binding`: a digest of what the
# decision rests on. `state`: asked -> once | always | denied | expired | withdrawn.
approval = sa.Table(
    "approval",
    meta,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("conversation_id", sa.ForeignKey("conversation.id"), nullable=False),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("call_id", sa.Text, nullable=False),
    sa.Column("tool", sa.Text, nullable=False),
    sa.Column("title", sa.Text, nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
    sa.Column("binding", sa.Text, nullable=False),
    sa.Column("rule", sa.Text, nullable=False),
    sa.Column("address", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("by", sa.Text, nullable=False, server_default=""),
    sa.Column("asked_at", sa.Double, nullable=False),
    sa.Column("expires_at", sa.Double, nullable=False),
    sa.Column("decided_at", sa.Double),
)
sa.Index("approval_call", approval.c.conversation_id, approval.c.seq, approval.c.call_id, unique=True)
_asked = approval.c.state == "asked"
sa.Index("approval_open", approval.c.asked_at, sqlite_where=_asked, postgresql_where=_asked)

# What a person has allowed for good; `rule` is a digest that the tool makes.
permit = sa.Table(
    "permit",
    meta,
    sa.Column("tool", sa.Text, primary_key=True),
    sa.Column("rule", sa.Text, primary_key=True),
    sa.Column("title", sa.Text, nullable=False),
    sa.Column("by", sa.Text, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
)

# Versions of skills on the disk of a machine, which `home` names with the folder; the disk decides what runs.
# `number` counts the installs of a name; `files` and `granted` are JSON; `state`: live | kept | gone.
skill_version = sa.Table(
    "skill_version",
    meta,
    sa.Column("id", _id, primary_key=True),
    sa.Column("home", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("sha256", sa.Text, nullable=False),
    sa.Column("version", sa.Text, nullable=False),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("files", sa.Text, nullable=False),
    sa.Column("granted", sa.Text, nullable=False, server_default="[]"),
    sa.Column("state", sa.Text, nullable=False),
    sa.UniqueConstraint("home", "name", "number", "sha256"),
)

# What there is of tools and skills (seed 002). `kind`: tool | skill; `system`: it ships with the program and
# can't be removed; `here`: it was there at the last look. People change `active` and `deleted_at` only.
capability = sa.Table(
    "capability",
    meta,
    sa.Column("id", _id, primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("entry", sa.Text, nullable=False),
    sa.Column("description", sa.Text, nullable=False),
    sa.Column("version", sa.Text, nullable=False, server_default=""),
    sa.Column("sha256", sa.Text, nullable=False, server_default=""),
    sa.Column("system", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("active", sa.Boolean, nullable=False, server_default=sa.true()),
    sa.Column("here", sa.Boolean, nullable=False, server_default=sa.true()),
    sa.Column("deleted_at", sa.Double),
    sa.UniqueConstraint("kind", "name"),
)

# The lists of an agent, of a person (`channel:id`), or of both together; "" is any.
capability_binding = sa.Table(
    "capability_binding",
    meta,
    sa.Column("capability_id", sa.ForeignKey("capability.id"), primary_key=True),
    sa.Column("agent", sa.Text, primary_key=True),
    sa.Column("user", sa.Text, primary_key=True),
)

# Conversations that a turn has started beside it. `id` is the first part of their address's chat;
# `parent` is the conversation that gets the result, `place` the chat that this talks to.
# `state`: running -> done | failed | stopped.
subagent = sa.Table(
    "subagent",
    meta,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("parent", sa.Text, nullable=False),
    sa.Column("place", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("task", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False, server_default="running"),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("ended_at", sa.Double),
)
_unfinished = subagent.c.state == "running"
sa.Index("subagent_running", subagent.c.parent, sqlite_where=_unfinished, postgresql_where=_unfinished)

# The private chats that share a person's session; `sender` is `channel:id`, as the configuration names them,
# `at` is when they last wrote there.
route = sa.Table(
    "route",
    meta,
    sa.Column("address", sa.Text, primary_key=True),
    sa.Column("person", sa.Text, nullable=False),
    sa.Column("sender", sa.Text, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
)
sa.Index("route_person", route.c.person, route.c.at)

# Who does what only one process may do, such as polling for one bot.
lease = sa.Table(
    "lease",
    meta,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("until", sa.Double, nullable=False),
)

# Single values: how far a platform's stream was read, whether a real model was ever used.
fact = sa.Table(
    "fact",
    meta,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)

# People who were let in, beside those whom the configuration names; `role` is owner or user.
member = sa.Table(
    "member",
    meta,
    sa.Column("channel", sa.Text, primary_key=True),
    sa.Column("sender", sa.Text, primary_key=True),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False, server_default=""),
    sa.Column("at", sa.Double, nullable=False),
)

# People who asked to be let in, at which `address`; only a hash of the code is kept.
pairing = sa.Table(
    "pairing",
    meta,
    sa.Column("channel", sa.Text, primary_key=True),
    sa.Column("sender", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, server_default=""),
    sa.Column("address", sa.Text, nullable=False),
    sa.Column("code_hash", sa.Text, nullable=False),
    sa.Column("expires_at", sa.Double, nullable=False),
    sa.Column("tries", sa.Integer, nullable=False, server_default="0"),
    sa.Column("at", sa.Double, nullable=False),
)

# Why a message was not answered: the gate that stopped it, and the setting that would let it pass.
verdict = sa.Table(
    "verdict",
    meta,
    sa.Column("id", _id, primary_key=True),
    sa.Column("address", sa.Text, nullable=False),
    sa.Column("message_id", sa.Text, nullable=False),
    sa.Column("sender", sa.Text, nullable=False),
    sa.Column("gate", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("setting", sa.Text, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
)
sa.Index("verdict_address", verdict.c.address, verdict.c.id)

# What could not be read, kept for a person to look at.
poison = sa.Table(
    "poison",
    meta,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("channel", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("problem", sa.Text, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
)

# Texts that can be searched by their terms, see gateway/memory/words.py. `passages` and `length` (in terms)
# are of all of them together; `changes` counts, for those who keep something in memory; `version` is that of
# the terms; `encoder` made the vectors.
corpus = sa.Table(
    "corpus",
    meta,
    sa.Column("id", _id, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("version", sa.Integer, nullable=False, server_default="0"),
    sa.Column("encoder", sa.Text, nullable=False, server_default=""),
    sa.Column("passages", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("length", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("changes", sa.BigInteger, nullable=False, server_default="0"),
)

# How many passages have a term. Terms are in the order of code points, whatever the language of the database.
corpus_term = sa.Table(
    "corpus_term",
    meta,
    sa.Column("corpus_id", sa.ForeignKey("corpus.id"), primary_key=True),
    sa.Column("term", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), primary_key=True),
    sa.Column("passages", sa.BigInteger, nullable=False),
)

# `source`: the note or the conversation; `first` and `last`: lines of the note, or places in the transcript,
# whose text is not repeated here. `terms` begins with what stands for corpus and source.
passage = sa.Table(
    "passage",
    meta,
    sa.Column("id", _id, primary_key=True),
    sa.Column("corpus_id", sa.ForeignKey("corpus.id"), nullable=False),
    sa.Column("source", sa.BigInteger, nullable=False),
    sa.Column("first", sa.BigInteger, nullable=False),
    sa.Column("last", sa.BigInteger, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("terms", sa.Text, nullable=False),
    sa.Column("length", sa.Integer, nullable=False),
    sa.Column("vector", sa.LargeBinary),
)
sa.Index("passage_source", passage.c.corpus_id, passage.c.source, passage.c.first)
# On SQLite an FTS5 table stands in its place, made when it is first needed: not every SQLite has FTS5.
sa.Index(
    "passage_terms",
    sa.text("array_to_tsvector(string_to_array(terms, ' '))"),
    _table=passage,
    postgresql_using="gin",
).ddl_if(dialect="postgresql")

# The notes of a folder as they were when they were indexed; `problem` says why one is left out.
mem_file = sa.Table(
    "mem_file",
    meta,
    sa.Column("id", _id, primary_key=True),
    sa.Column("corpus_id", sa.ForeignKey("corpus.id"), nullable=False),
    sa.Column("path", sa.Text, nullable=False),
    sa.Column("mtime_ns", sa.BigInteger, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("sha256", sa.Text, nullable=False),
    sa.Column("problem", sa.Text, nullable=False, server_default=""),
    sa.UniqueConstraint("corpus_id", "path"),
)

# How far each transcript can be searched.
searchable = sa.Table(
    "searchable",
    meta,
    sa.Column("conversation_id", sa.ForeignKey("conversation.id"), primary_key=True),
    sa.Column("seq", sa.BigInteger, nullable=False),
)
