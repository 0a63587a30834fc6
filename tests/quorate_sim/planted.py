"""Rules of the protocol switched off on purpose, to see that the simulator notices.

Each defect is a context manager that changes the core for a while.  Seeds that run with one of
them must fail before long (`quorate_sim.canaries`), else the simulator proves nothing.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager

from quorate_sim import (
    all_owners_story,
    alone_stories,
    chain_story,
    isolation_stories,
    lease_stories,
    planted_copies,
    planted_masters,
    planted_placements,
    planted_primaries,
    planted_rare,
    planted_resets,
    planted_rest,
    rebuilt_story,
    refused_story,
    silent_story,
    unrepaired_story,
)

DEFECTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "acknowledge-before-majority": planted_primaries.acknowledge_before_majority,
    "acknowledged-before-sync": planted_copies.acknowledged_before_sync,
    "adopted-by-nobody": planted_primaries.adopted_by_nobody,
    "alone-without-lease": planted_resets.alone_without_lease,
    "answered-above-a-hole": planted_copies.answer_above_a_hole,
    "answered-tail-ignored": planted_primaries.answered_tail_ignored,
    "answered-while-isolated": planted_resets.answered_while_isolated,
    "any-change-is-a-hand-over": planted_primaries.any_change_is_a_hand_over,
    "any-number-of-answers": planted_primaries.any_number_of_answers,
    "caught-up-before-joint": planted_primaries.caught_up_before_joint,
    "chain-ignored": planted_resets.chain_ignored,
    "chain-not-waited-for": planted_resets.chain_not_waited_for,
    "change-of-primary-untold": planted_resets.change_of_primary_untold,
    "contact-by-ping": planted_resets.contact_by_ping,
    "domains-ignored": planted_placements.domains_ignored,
    "filters-read-once": planted_placements.filters_read_once,
    "full-sync-forgotten": planted_resets.full_sync_forgotten,
    "greets-nobody-anew": planted_rare.greets_nobody_anew,
    "hand-over-forgets": planted_resets.hand_over_forgets,
    "keys-that-expire-forgotten": planted_rest.keys_that_expire_forgotten,
    "known-by-promise-alone": planted_rare.known_by_promise_alone,
    "lease-end-forgotten-at-rest": planted_rest.lease_end_forgotten,
    "lease-forgotten": planted_primaries.lease_forgotten,
    "lease-not-joint": planted_primaries.lease_not_joint,
    "lineage-before-data": planted_copies.lineage_before_data,
    "list-forgotten": planted_copies.list_forgotten,
    "longest-log-wins": planted_primaries.longest_log_wins,
    "master-term-forgotten": planted_masters.master_term_forgotten,
    "never-looks-again": planted_masters.never_looks_again,
    "no-quorum-at-rest-untold": planted_rest.no_quorum_at_rest_untold,
    "nobody-left-but-stuck": planted_masters.nobody_left_but_stuck,
    "plus-one-for-plus-two": planted_masters.plus_one_for_plus_two,
    "promise-forgotten": planted_copies.promise_forgotten,
    "promise-not-durable": planted_copies.promise_not_durable,
    "read-of-unanswered": planted_primaries.read_of_unanswered,
    "read-without-lease": planted_primaries.read_without_lease,
    "rebuilt-beside-what-was": planted_rare.rebuilt_beside_what_was,
    "rebuilt-with-one-set": planted_masters.both_sides_vote_as_one,
    "rebuilt-without-a-quorum": planted_masters.rebuilt_without_a_quorum,
    "refilled-without-its-log": planted_rare.refilled_without_its_log,
    "refused-and-told-all": planted_rare.refused_and_told_all,
    "refused-batch-forgets": planted_copies.refused_batch_forgets,
    "refused-for-ever": planted_rare.refused_for_ever,
    "reset-despite-isolation": planted_resets.despite_isolation,
    "reset-of-a-majority": planted_resets.minority_is_enough,
    "reset-twice-for-one-loss": planted_resets.one_loss_counts_twice,
    "retries-forgotten-at-rest": planted_rest.retries_forgotten,
    "roles-stay-where-taken": planted_placements.roles_stay_where_they_were_taken,
    "rows-set-aside-serve": planted_resets.rows_set_aside_serve,
    "same-term-twice": planted_primaries.same_term_twice,
    "serves-while-frozen": planted_primaries.serves_while_frozen,
    "silent-dropped-alone": planted_masters.silent_dropped_alone,
    "silent-dropped-early": planted_placements.silent_dropped_early,
    "skip-the-lease-wait": planted_primaries.skip_the_lease_wait,
    "slot-order-trusted": planted_primaries.slot_order_trusted,
    "snapshot-row-wins": planted_copies.snapshot_row_wins,
    "staged-removes-first": planted_placements.staged_removes_first,
    "source-deletes-early": planted_copies.source_deletes_early,
    "stale-master-obeyed": planted_masters.stale_master_obeyed,
    "stale-master-writes": planted_masters.stale_master_writes,
    "stale-noop-wins": planted_primaries.stale_noop_wins,
    "store-known-by-name": planted_copies.store_known_by_name,
    "timers-forgotten": planted_placements.timers_count_anew_under_each_master,
    "tombstone-dropped-early": planted_copies.tombstone_dropped_early,
    "transfer-from-unrepaired": planted_copies.transfer_from_unrepaired,
    "two-removals": planted_primaries.no_joint_mode,
    "vote-twice-for-a-term": planted_copies.vote_twice_for_a_term,
    "wake-up-forgotten": planted_rest.wake_up_forgotten,
    "weights-ignored": planted_placements.weights_ignored,
}

STORIES: dict[str, Callable[[], None]] = {
    "chain-ignored": chain_story.the_second_link_is_waited_for,
    "chain-not-waited-for": chain_story.the_second_link_is_waited_for,
    "answered-while-isolated": (
        isolation_stories.what_the_others_acknowledge_too_late_is_not_answered
    ),
    "change-of-primary-untold": (
        alone_stories.what_only_the_primary_had_is_lost_with_it_and_that_is_announced
    ),
    "contact-by-ping": isolation_stories.a_majority_that_hears_the_master_in_vain_stops_as_well,
    "full-sync-forgotten": (
        all_owners_story.an_owner_that_lacks_a_write_keeps_it_from_being_answered
    ),
    "hand-over-forgets": alone_stories.a_hand_over_waits_until_others_have_what_was_acknowledged,
    "lease-forgotten": lease_stories.a_voter_that_restarts_reports_the_lease_it_has_forgotten,
    "lease-not-joint": lease_stories.a_lease_in_joint_mode_needs_the_new_voters_too,
    "rebuilt-with-one-set": rebuilt_story.who_is_left_lacks_what_was_answered,
    "rebuilt-without-a-quorum": (
        rebuilt_story.without_a_quorum_nothing_serves_and_the_missing_are_named
    ),
    "refused-and-told-all": refused_story.rebuilding_waits_for_an_agent_that_refuses_its_zone,
    "reset-despite-isolation": (
        isolation_stories.a_majority_that_is_cut_off_stops_before_the_other_side_serves
    ),
    "silent-dropped-alone": (
        silent_story.silent_voters_are_dropped_when_a_majority_has_what_was_answered
    ),
    "silent-dropped-early": silent_story.silent_voters_are_dropped_when_their_time_is_over,
    "transfer-from-unrepaired": unrepaired_story.a_copy_supplies_rows_only_of_a_term_it_adopted,
}
"""Defects that no seed comes upon, or one in thousands: a story without chance finds them."""
