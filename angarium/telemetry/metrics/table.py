"""The table of all metrics of Angarium. Its order is that of the reference page.

A metric that is not here cannot be exported: `families` looks each one up. Names and units follow the
conventions of Prometheus and of OpenTelemetry. No label holds a secret, a URL, or anything that a receiver
answered.
"""

from angarium.telemetry.metrics.description import MetricDescription, MetricKind, MetricLabel

RECEIVER = MetricLabel("receiver", "a name, or `_other`")
TENANT = MetricLabel("tenant", "a name, or `_other`")
PACE_SOURCE = MetricLabel("limited_by", "`headers`, `after_429`, `concurrency`, `smart`")

NODE = (
    MetricDescription(
        name="angarium_node_info", kind=MetricKind.INFO, unit="1",
        help="Name and version.",
        labels=(MetricLabel("node"), MetricLabel("version")), note="Always 1",
    ),
    MetricDescription(
        name="angarium_deliveries_total", kind=MetricKind.COUNTER, unit="{attempt}",
        help="Attempts by outcome.",
        labels=(MetricLabel("outcome", "`delivered`, `failed`, `rejected`, `throttled`, `gone`"),),
        note="[What the answer meant](wire.md#what-a-receiver-answers). "
        "A batch counts once for each of its events; pings do not count",
    ),
    MetricDescription(
        name="angarium_handshakes_total", kind=MetricKind.COUNTER, unit="{handshake}",
        help="Handshakes by outcome.",
        labels=(MetricLabel("outcome", "`succeeded`, `failed`"),),
        note="[What a receiver has to prove](receivers.md#handshake)",
    ),
    MetricDescription(
        name="angarium_attempts_total", kind=MetricKind.COUNTER, unit="{attempt}",
        help="Attempts by status.",
        labels=(MetricLabel(
            "status",
            "`2xx` to `5xx`, else the [stage](troubleshooting.md#why-a-receiver-gets-nothing) that failed, "
            "or `not_sent` (the lease had expired)",
        ),),
        note="A batch counts as one",
    ),
    MetricDescription(
        name="angarium_attempt_seconds", kind=MetricKind.HISTOGRAM, unit="s",
        help="Time from request to outcome.",
    ),
    MetricDescription(
        name="angarium_arrival_seconds", kind=MetricKind.HISTOGRAM, unit="s",
        help="Time from accepting an event to its 2xx.", note="Includes waits for fan-out, retries and rates",
    ),
    MetricDescription(
        name="angarium_too_many_requests_total", kind=MetricKind.COUNTER, unit="{attempt}",
        help="Attempts that were answered 429.",
    ),
    MetricDescription(
        name="angarium_throttle_seconds", kind=MetricKind.HISTOGRAM, unit="s",
        help="Time for which a receiver asked to get nothing more, by 429 or by 503 with Retry-After.",
        note="After a 429 without a usable time, that of the backoff",
    ),
    MetricDescription(
        name="angarium_dead_letters_total", kind=MetricKind.COUNTER, unit="{event}",
        help="Events given up.",
        labels=(MetricLabel(
            "reason",
            "[as in dead letters](wire.md#dead-letters), or `discarded` (for an unknown receiver, and no "
            "dead letter could be stored), or `region` (discarded without a dead letter)",
        ),),
        note="Each reason is there from the start",
    ),
    MetricDescription(
        name="angarium_actors", kind=MetricKind.GAUGE, unit="{receiver}",
        help="Receivers in memory.",
        note="Idle ones leave memory after a minute",
    ),
    MetricDescription(
        name="angarium_receivers_parked", kind=MetricKind.GAUGE, unit="{receiver}",
        help="Receivers whose events wait only in the stream.",
    ),
    MetricDescription(
        name="angarium_receivers_held", kind=MetricKind.GAUGE, unit="{receiver}",
        help="Receivers in memory that are held back.",
        labels=(MetricLabel(
            "phase", "`throttled`, `backing_off`, `offline`, `paused`, `disabled`, `misconfigured`, "
            "`unverified`"
        ),),
        note="[What holds them back](troubleshooting.md#why-a-receiver-gets-nothing)",
    ),
    MetricDescription(
        name="angarium_tenant_receivers_held", kind=MetricKind.GAUGE, unit="{receiver}",
        help="Receivers in memory that are held back, by tenant.",
        labels=(TENANT, MetricLabel("phase", "as above")),
        note="A named tenant has only the phases that some receiver is in",
    ),
    MetricDescription(
        name="angarium_receivers_late", kind=MetricKind.GAUGE, unit="{receiver}",
        help="Receivers with an attempt that has been due for more than 60 s, and none in flight.",
        note="Nothing holds them back, and they have a token: the node is late",
    ),
    MetricDescription(
        name="angarium_receivers_paced", kind=MetricKind.GAUGE, unit="{receiver}",
        help="Receivers in memory that a learnt limit holds below their rate or concurrency.",
        labels=(PACE_SOURCE,), note="[What their answers teach](receivers.md#pace)",
    ),
    MetricDescription(
        name="angarium_paces_learnt_total", kind=MetricKind.COUNTER, unit="{fact}",
        help="Facts about what a receiver can take, by what limited it then.",
        labels=(MetricLabel("limited_by", "as above, or `none`"),),
        note="At most one a second for each receiver. Many by `after_429` or `smart`: receivers refuse often",
    ),
    MetricDescription(
        name="angarium_rate_buckets", kind=MetricKind.GAUGE, unit="{receiver}",
        help="Receivers in memory with a rate, by how full their buckets of tokens are.",
        labels=(MetricLabel(
            "fill",
            "`empty` (less than one token: if an event waits, the rate holds it back), `low` (less than "
            "half), `high`, `full`",
        ),),
    ),
    MetricDescription(
        name="angarium_events_waiting", kind=MetricKind.GAUGE, unit="{event}",
        help="Events known to wait, without those in flight.",
        note="After a takeover a parked backlog counts only when it is read",
    ),
    MetricDescription(
        name="angarium_backlog_events", kind=MetricKind.GAUGE, unit="{event}",
        help="Events known to wait or in flight, by receiver.", labels=(RECEIVER,),
    ),
    MetricDescription(
        name="angarium_backlog_oldest_seconds", kind=MetricKind.GAUGE, unit="s", over_workers="max",
        help="Age of the oldest event that is not settled, by receiver.", labels=(RECEIVER,),
        note="Of `_other` the highest. After a takeover it is known once the receiver is in memory again",
    ),
    MetricDescription(
        name="angarium_attempts_in_flight", kind=MetricKind.GAUGE, unit="{attempt}",
        help="Attempts in flight.",
    ),
    MetricDescription(
        name="angarium_proxy_connections", kind=MetricKind.GAUGE, unit="{connection}",
        help="Connections through each proxy that are open or being opened.",
        labels=(MetricLabel("proxy", "the name of a [profile](operating.md#egress)"),),
        note="None without proxies",
    ),
    MetricDescription(
        name="angarium_messages_unread", kind=MetricKind.GAUGE, unit="{message}",
        help="Accepted messages that the node has not read yet, as of the newest that it read.",
        labels=(MetricLabel("stream", "`deliveries`, `events`"),),
        note="Parked backlogs do not count. Above zero for long: there are too few nodes",
    ),
    MetricDescription(
        name="angarium_tenants_parked", kind=MetricKind.GAUGE, unit="{tenant}",
        help="Tenants that flood their partition: their fan-outs wait.",
        note="[`angarium doctor`](troubleshooting.md#why-fan-outs-of-one-tenant-come-late) names them",
    ),
    MetricDescription(
        name="angarium_tenant_parked", kind=MetricKind.GAUGE, unit="{tenant}",
        help="Tenants that are parked, those first that are farthest behind.", labels=(TENANT,),
        note="1 for each that is named",
    ),
    MetricDescription(
        name="angarium_tenant_routed_events_total", kind=MetricKind.COUNTER, unit="{event}",
        help="Fan-outs routed, by tenant.", labels=(TENANT,),
        note="While a tenant is not one of the largest, its events are counted as `_other`, and stay there; "
        "so are those of all tenants beyond the first 4,096",
    ),
    MetricDescription(
        name="angarium_router_events_total", kind=MetricKind.COUNTER, unit="{event}",
        help="Fan-outs routed.",
        note="If another owner routes one again, it counts again; this also applies to the next four",
    ),
    MetricDescription(
        name="angarium_router_copies_total", kind=MetricKind.COUNTER, unit="{event}",
        help="Copies of fan-outs stored.",
    ),
    MetricDescription(
        name="angarium_router_unmatched_total", kind=MetricKind.COUNTER, unit="{event}",
        help="Fan-outs without a subscriber.",
    ),
    MetricDescription(
        name="angarium_router_malformed_total", kind=MetricKind.COUNTER, unit="{event}",
        help="Fan-outs that are malformed.",
    ),
    MetricDescription(
        name="angarium_router_evicted_total", kind=MetricKind.COUNTER, unit="{event}",
        help="Fan-outs that became dead letters before they were routed.",
        note="Room was short, or their tenant had more than its quota",
    ),
    MetricDescription(
        name="angarium_router_withheld_total", kind=MetricKind.COUNTER, unit="{event}",
        help="Copies of fan-outs that were not made, since the receiver does not want the event.",
        labels=(MetricLabel("reason", "`filter`, `region`"),),
    ),
    MetricDescription(
        name="angarium_filter_failures_total", kind=MetricKind.COUNTER, unit="{event}",
        help="Filters that could not be evaluated for an event, which was not sent.",
        labels=(MetricLabel("reason", "`not_json`, `failed`, `too_costly`"),),
        note="They are withheld for the reason `filter`, too",
    ),
    MetricDescription(
        name="angarium_journal_append_seconds", kind=MetricKind.HISTOGRAM, unit="s",
        help="Time of an append to the journal.", note="`_count` is the number of appends",
    ),
    MetricDescription(
        name="angarium_journal_facts_total", kind=MetricKind.COUNTER, unit="{fact}",
        help="Facts recorded.",
    ),
    MetricDescription(
        name="angarium_journal_bytes_total", kind=MetricKind.COUNTER, unit="By",
        help="Bytes appended to the journal.",
    ),
    MetricDescription(
        name="angarium_shards", kind=MetricKind.GAUGE, unit="{shard}",
        help="Shards of this node.",
        labels=(MetricLabel("state", "`running`, `suspended` (the lease expired), `refused`"),),
    ),
    MetricDescription(
        name="angarium_installation_shards", kind=MetricKind.GAUGE, unit="{shard}", over_workers="max",
        help="Shards of the installation.",
        note="The same on each node. If fewer are `running` on all nodes together, some have no owner",
    ),
    MetricDescription(
        name="angarium_takeovers_total", kind=MetricKind.COUNTER, unit="{shard}",
        help="Shards claimed, by how the last owner left them.",
        labels=(MetricLabel(
            "claim",
            "`clean` (the last owner released it), `unclean` (it died), `resumed` (the node's own, after its "
            "lease expired)",
        ),),
    ),
    MetricDescription(
        name="angarium_fences_total", kind=MetricKind.COUNTER, unit="{shard}",
        help="Shards lost to another owner, noticed at an append.",
    ),
    MetricDescription(
        name="angarium_snapshot_age_seconds", kind=MetricKind.GAUGE, unit="s", over_workers="max",
        help="Time since the snapshots of a shard last had everything, of the shard where that is longest.",
        note="Snapshots are written every 5 s. The older they are, the longer a takeover takes",
    ),
    MetricDescription(
        name="angarium_own_outage", kind=MetricKind.GAUGE, unit="1",
        help="Whether the node can connect to no host, 1 or 0.",
        note="[It then makes only probes](troubleshooting.md#a-node-that-reaches-no-host). "
        "With workers: how many",
    ),
    MetricDescription(
        name="angarium_own_outages_total", kind=MetricKind.COUNTER, unit="{outage}",
        help="Times that the node could connect to no host.",
    ),
    MetricDescription(
        name="angarium_outage_probes_total", kind=MetricKind.COUNTER, unit="{probe}",
        help="Connections that the node opened only to learn whether it reaches any host.",
    ),
    MetricDescription(
        name="angarium_nats_connected", kind=MetricKind.GAUGE, unit="1",
        help="Whether NATS is connected, 1 or 0.",
        over_workers="min",
    ),
    MetricDescription(
        name="angarium_nats_reconnects_total", kind=MetricKind.COUNTER, unit="{reconnect}",
        help="Reconnects to NATS.",
    ),
    MetricDescription(
        name="angarium_spans_total", kind=MetricKind.COUNTER, unit="{span}",
        help="Spans of traces, by what became of them.",
        labels=(MetricLabel(
            "result",
            "`exported`, `dropped` (the queue was full, the collector did not take them, or too many events "
            "of a tenant were not settled)",
        ),),
        note="Only if [traces](operating.md#traces) are on. A span counts as exported when the collector has "
        "answered its batch with success; which spans it rejects in that answer "
        "(`partial_success`) is not read",
    ),
    MetricDescription(
        name="angarium_loop_lag_seconds", kind=MetricKind.HISTOGRAM, unit="s",
        help="How late the event loop runs due callbacks.", note="Measured ten times a second",
    ),
)  # fmt: skip

WORKERS = (
    MetricDescription(
        name="angarium_workers", kind=MetricKind.GAUGE, unit="{worker}",
        help="Workers, and those that answered this scrape in time.",
        labels=(MetricLabel("state", "`configured`, `up` (answered this request in time)"),),
    ),
    MetricDescription(
        name="angarium_worker_restarts_total", kind=MetricKind.COUNTER, unit="{worker}",
        help="Workers that were started again after they ended by themselves.",
    ),
)  # fmt: skip

API = (
    MetricDescription(
        name="angarium_api_requests_total", kind=MetricKind.COUNTER, unit="{request}",
        help="Requests that were answered.",
        labels=(
            MetricLabel("operation", "`publish` (of one event), `read` (GET), `change` (all others)"),
            MetricLabel("status", "`2xx` to `5xx`"),
        ),
    ),
    MetricDescription(
        name="angarium_api_request_seconds", kind=MetricKind.HISTOGRAM, unit="s",
        help="Time from a request to the beginning of its answer.",
        labels=(MetricLabel("operation", "as above"),),
    ),
)  # fmt: skip

LEDGER = (
    MetricDescription(
        name="angarium_ledger_lag_seconds", kind=MetricKind.GAUGE, unit="s",
        help="Time for which facts may have been recorded that are not stored yet.",
        note="At most a second or two while it keeps up; absent while this process holds no shards",
    ),
    MetricDescription(
        name="angarium_ledger_facts_total", kind=MetricKind.COUNTER, unit="{fact}", help="Facts stored.",
    ),
    MetricDescription(
        name="angarium_ledger_gaps_total", kind=MetricKind.COUNTER, unit="{gap}",
        help="Gaps: facts that were gone from the journal before they were stored.",
    ),
    MetricDescription(
        name="angarium_ledger_shares", kind=MetricKind.GAUGE, unit="{share}",
        help="Shares of the shards that this process holds.", note="Always 1 with SQLite",
    ),
    MetricDescription(
        name="angarium_ledger_database_connected", kind=MetricKind.GAUGE, unit="1",
        help="Whether the database can be reached, 1 or 0.",
    ),
)  # fmt: skip

METRICS = (*NODE, *WORKERS, *API, *LEDGER)

BY_NAME = {each.name: each for each in METRICS}
