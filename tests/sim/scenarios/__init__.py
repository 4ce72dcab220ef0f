"""Precise interleavings: each is the one that a rule of the design was paid for with.

Seeds may take long to come across them. Each passes with the product as it is, and fails with the rule taken
out (`tests.sim.mutants` says which).
"""

from tests.sim.scenarios import backlogs, numbering, ownership, rates, reading, routing, storage, width

ALL = (
    ownership.zombie_with_a_renewed_lease, ownership.first_heartbeat_slept_through,
    ownership.claimant_sleeps_between_two_steps, ownership.flush_of_a_sleeper,
    ownership.late_snapshot_of_a_sleeper, ownership.handover_while_snapshots_are_written,
    ownership.burial_owed_at_a_takeover, ownership.tail_of_a_lagging_replica,
    reading.acked_beyond_the_floor, reading.backlog_of_a_lagging_replica,
    numbering.window_shrinks_between_owners, numbering.window_set_is_lost, numbering.opening_is_lost,
    routing.routed_again_beyond_the_window, routing.one_of_two_copies_is_stored,
    routing.subscription_that_no_replica_shows,
    rates.ping_before_a_crash, rates.burst_before_a_crash, rates.owner_key_is_deleted,
    backlogs.put_again_at_once, backlogs.forgotten_by_a_lagging_replica, backlogs.forgetting_is_lost,
    backlogs.death_is_lost,
    storage.full_of_what_nobody_takes,
    width.one_event_fails_for_long, width.all_events_fail_for_long, width.receiver_is_down,
)  # fmt: skip
