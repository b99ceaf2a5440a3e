"""Where each defect that users met in a run, or attackers could use, is tested.

Whoever removes or renames one of these tests takes a promise away, and is told so here. The figures
beside them are in `benchmarks/results`: `run_deaths` (1, 10), `run_liars` (2), `soak` (17).
"""

from pathlib import Path

import pytest

from support.named_tests import missing

BAD, DEATHS, FAULTS = "client/test_bad_input.py", "client/test_deaths.py", "faults"
CORE, SCREENING = "core/coordinator", "core/coordinator/test_screening.py"
SERVER, DOOR, UPDATE = (
    "authority/test_server.py",
    "authority/test_admission.py",
    "cli/test_update.py",
)
WORLDS = "simulate/test_worlds.py::test_every_invariant_holds_in_worlds_of_a_run"

DEFECTS = {
    "1 a death costs two rounds at their limit": [
        f"{DEATHS}::test_a_client_that_dies_in_a_round_is_called_gone_and_its_work_done_by_others",
        f"{DEATHS}::test_a_client_that_hangs_is_called_gone",
        f"{DEATHS}::test_nobody_waits_for_one_that_says_goodbye",
        f"{DEATHS}::test_a_client_that_dies_while_it_loads_is_called_gone",
        f"{DEATHS}::test_another_stores_the_model_when_the_checkpointer_dies",
        f"{DEATHS}::test_one_that_is_slow_and_answers_is_waited_for",
    ],
    "2a loudness counts": [
        "learning/methods/test_influence.py::test_in_distro_loudness_changes_no_bit",
        "learning/methods/test_influence.py::test_a_payload_a_million_times_louder_counts_like_the_others",
    ],
    "2b nonsense is learnt": [
        f"{SCREENING}::test_who_goes_against_all_is_screened_at_once_however_many_agree",
        f"{SCREENING}::test_who_goes_nowhere_is_screened_after_some_rounds",
        f"{SCREENING}::test_a_copy_of_anothers_is_screened_and_the_first_to_come_is_not",
        f"{SCREENING}::test_a_copy_that_was_retouched_is_screened_too",
        f"{SCREENING}::test_ones_own_earlier_result_is_screened",
        f"{SCREENING}::test_ones_own_earlier_result_is_screened_though_it_was_retouched",
        "client/test_liars.py::test_a_client_that_sends_nonsense_is_not_learnt_from_and_ejected",
    ],
    "2c nobody looks whether the assigned was trained": [
        "learning/test_trial.py::test_who_trained_on_the_samples_passes_and_the_model_stays",
        f"{CORE}/test_audits.py::test_honest_clients_of_all_kinds_stay_and_who_trains_something_else_leaves",
        f"{CORE}/test_audits.py::test_liars_that_collude_on_audits_are_ejected_and_nobody_else",
        f"{CORE}/test_audits.py::test_an_accuser_that_is_always_alone_leaves_though_its_results_are_fine",
        "client/test_liars.py::test_an_auditor_that_alone_accuses_everybody_is_ejected",
    ],
    "3 an equivocator has others removed; a result that is withheld costs a round": [
        f"{BAD}::test_two_different_results_for_one_batch_leave_one_model",
        f"{BAD}::test_nobody_waits_for_a_result_that_its_maker_does_not_give_out",
    ],
    "4 idle keys stop an open run": [
        f"{FAULTS}/test_idle_keys.py::test_twelve_idle_keys_do_not_crowd_out_three_clients",
    ],
    "5 an edited file is ignored": [
        f"{UPDATE}::test_serve_says_loudly_what_was_edited_and_how_to_change_it",
        f"{UPDATE}::test_a_run_is_extended_while_it_runs",
        "client/test_changed_run.py::test_members_go_on_with_another_learning_rate_and_the_model_they_hold",
        "client/test_changed_run.py::test_a_finished_run_that_is_extended_goes_on_with_whoever_comes",
    ],
    "6 the line that is printed works nowhere else": [
        f"{FAULTS}/test_four_machines.py::test_the_lines_of_the_readme_make_a_run_of_four_machines",
        f"{FAULTS}/test_four_machines.py::test_who_cannot_reach_whom_is_on_both_screens",
        "host/test_routes.py::test_who_listens_everywhere_is_shown_by_an_address_that_can_be_pasted",
        "cli/test_serve.py::test_the_line_to_join_by_names_a_host_a_port_and_the_run",
        "client/test_joining.py::test_a_client_says_that_it_reaches_none_of_those_who_are_there",
    ],
    "7 joining waits in silence": [
        "client/test_joining.py::test_a_client_says_that_nobody_listens_where_it_was_sent",
        "client/test_joining.py::test_a_client_says_what_it_does_and_waits_for_before_it_trains",
        "client/test_joining.py::test_a_mistyped_key_is_an_error_not_a_new_key",
        "cli/test_join.py::test_a_mistyped_key_is_an_error_not_a_new_key",
        "cli/test_join.py::test_it_says_who_joins_and_what_takes_long_before_anything_does",
        "authority/test_open.py::test_a_host_without_a_port_is_told_so",
        "authority/test_attending.py::test_a_second_client_with_the_same_key_is_refused_and_the_first_goes_on",
        "authority/test_attending.py::test_a_clock_that_went_back_by_hours_keeps_nobody_out",
        "host/test_files.py::test_a_full_disk_names_the_file",
        "host/test_files.py::test_a_file_that_is_not_utf8_is_named_with_the_byte",
    ],
    "8 other data is trained on": [
        "client/test_fingerprint.py::test_other_data_under_the_same_name_is_refused_at_joining",
        "client/test_fingerprint.py::test_a_run_that_is_put_into_a_store_knows_its_data",
        "learning/data/test_fingerprint.py::test_held_out_text_and_the_tokenizer_that_a_text_names_count",
    ],
    "9 the server chooses what a client reads and writes": [
        "client/test_places.py::test_a_server_cannot_make_a_client_read_or_write_elsewhere",
        "client/test_places.py::test_everything_that_a_run_names_is_asked_about_at_once",
        "client/test_places.py::test_a_run_id_does_not_lead_out_of_the_output_folder",
        "client/test_models.py::test_no_model_is_read_where_its_owner_did_not_agree_to",
    ],
    "10 an accident costs all since the last epoch; a restart costs a client": [
        "client/test_checkpoints.py::test_a_model_is_stored_while_training_goes_on_and_a_run_goes_back_to_it",
        "authority/test_keeper.py::test_the_clock_of_a_run_stands_still_while_nobody_keeps_it",
        f"{FAULTS}/test_server_killed.py::test_a_run_survives_its_server_killed_in_every_phase",
    ],
    "11 a stranger fills the memory": [
        f"{DOOR}::test_badly_signed_messages_leave_nothing_in_the_servers_memory",
        f"{DOOR}::test_many_addresses_have_no_more_read_at_a_time_than_a_server_reads",
        f"{SERVER}::test_nothing_is_read_before_it_is_admitted",
        "authority/test_lookahead.py::test_no_more_of_a_message_is_taken_before_it_is_admitted_than_a_little",
        f"{SERVER}::test_a_long_message_of_a_stranger_is_not_looked_at",
        f"{SERVER}::test_a_message_that_does_not_come_gives_its_place_up",
        "authority/test_large_messages.py::test_only_so_many_large_messages_are_on_their_way_at_once",
    ],
    "12 what is checked is not what is kept": [
        "client/test_claims.py::test_no_other_spelling_of_a_place_is_kept",
        "client/test_places.py::test_a_client_trains_and_stores_in_places_of_its_own",
    ],
    "13 damage is taken for an end": [
        "host/test_journal.py::test_a_damaged_length_is_an_error_and_nothing_is_wiped",
        "host/test_journal.py::test_what_a_file_began_with_is_never_taken_for_a_cut_off_end",
        "cli/test_serve.py::test_a_damaged_journal_is_not_a_new_run",
    ],
    "14 the silent stay while others talk; metadata; a vocabulary of 257": [
        "authority/test_every_authority.py::test_who_is_silent_is_removed_while_others_talk",
        f"{SERVER}::test_what_a_witness_tells_for_people_is_bounded",
        "cli/test_init.py::test_its_vocabulary_is_that_of_bytes_and_cuts_into_whole_blocks",
    ],
    "15 replays and floods slow the run": [
        f"{DOOR}::test_replays_are_refused_cheaply_and_slowed_down",
        f"{SERVER}::test_a_replay_is_not_worth_the_check_of_its_signature",
        f"{SERVER}::test_what_only_members_may_say_counts_against_a_stranger_who_says_it",
        "authority/test_refusal_counts.py::test_connecting_anew_does_not_help_and_does_not_hurt_good_neighbours",
    ],
    "16 worlds without the real client": [
        WORLDS,
        "simulate/test_worlds.py::test_a_client_of_a_world_hears_of_its_own_result_after_a_crash",
        "simulate/test_mutants.py::test_a_mutant_is_caught",
        "cli/test_simulate.py::test_mutants_meet_the_worlds_that_were_asked_for",
    ],
    "17 processes grow with their rounds": [
        "authority/test_request_garbage.py::test_a_server_does_not_keep_what_requests_leave_behind",
        f"{SERVER}::test_a_server_sends_nothing_to_one_that_looks_no_longer",
        "client/test_behaviours.py::test_of_a_long_epoch_a_member_keeps_the_last_rounds_only",
        "exchange/peer/test_gossip.py::test_nothing_is_kept_of_rounds_that_are_over",
        f"{SERVER}::test_a_watcher_that_fell_far_behind_is_sent_the_state_and_no_backlog",
    ],
}


@pytest.mark.parametrize("tests", DEFECTS.values(), ids=DEFECTS.keys())
def test_a_defect_has_its_tests(tests: list[str]) -> None:
    assert missing(Path(__file__).parent.parent, tests) == []
