"""Where each defect that was found in the public implementation is tested here, and what it tests.

Whoever removes or renames one of these tests takes a promise away, and is told so here.
"""

from pathlib import Path

import pytest

from support.named_tests import missing

JOB, RAY, GROUP = "master/test_job.py", "master/test_job_on_ray.py", "rpc/test_group.py"
BUILDER, STATE, ELASTIC = (
    "api/test_builder.py",
    "master/test_state_is_kept.py",
    "backends/test_elastic.py",
)
SCENARIOS = "../scenarios/job"
ON_RAY = f"{RAY}::test_deaths_of_workers_sub_masters_and_masters_are_survived"

DEFECTS = {
    "P1 a master that recovers restarts a healthy job": [
        f"{JOB}::test_a_dead_master_costs_healthy_workers_nothing",
        ON_RAY,
    ],
    "P2 the next death in a role is ignored": [
        f"{JOB}::test_the_second_death_of_a_role_is_made_good_like_the_first",
        f"{JOB}::test_a_sub_master_dies_and_then_a_worker",
        ON_RAY,
    ],
    "P3 nobody is to blame": [f"{SCENARIOS}/05_who_is_to_blame.txt"],
    "P4 whoever started first is to blame": [
        f"{SCENARIOS}/05_who_is_to_blame.txt",
        f"{SCENARIOS}/06_the_blame_moves.txt",
    ],
    "P5 an empty queue is polled": ["channel/test_data_channel.py::test_get_waits_for_a_record"],
    "P6 results and counters are not persisted": [
        f"{JOB}::test_what_dies_while_there_is_no_master_is_made_good_by_the_next",
        f"{JOB}::test_a_worker_that_finished_while_there_was_no_master_is_not_run_again",
    ],
    "P7 a failed save is logged": [
        f"{STATE}::test_a_decision_that_cannot_be_saved_is_not_carried_out"
    ],
    "P8 unreadable state is no state": [
        f"{STATE}::test_unreadable_state_stops_the_master_and_nobody_else",
        "master/test_remote_journals.py::test_what_is_missing_or_unreadable_is_an_error",
        "master/test_remote_journals.py::test_what_is_missing_or_unreadable_in_a_bucket_is_an_error",
    ],
    "P9 lengths of a batch": [f"{GROUP}::test_five_items_on_four_workers"],
    "P10 an index from the end": [f"{GROUP}::test_an_index_counts_from_either_end"],
    "P11 keyword sequences": [f"{GROUP}::test_keyword_sequences_are_split_too"],
    "P12 the case of names": [f"{BUILDER}::test_roles_are_called_as_they_were_defined"],
    "P13 impossible totals": [f"{BUILDER}::test_more_workers_than_the_cluster_holds_are_refused"],
    "P14 a test's configuration": [
        f"{BUILDER}::test_a_torchrun_command_says_all_and_nothing_is_added"
    ],
    "P15 the order of the builder's steps": [
        f"{BUILDER}::test_elastic_training_by_nodes_and_processes_in_either_order",
    ],
    "P16 stragglers by jitter": [
        "backends/test_elastic_rounds.py::test_one_percent_of_jitter_makes_nobody_a_straggler",
    ],
    "P17 a hung actor is never killed": [
        "substrate/test_local.py::test_a_stopped_actor_that_ignores_signals_is_killed",
        f"{JOB}::test_a_stopped_process_is_found_silent_and_replaced",
        f"{JOB}::test_what_does_not_stop_is_killed",
        ON_RAY,
    ],
    "P18 typos are accepted": [
        f"{BUILDER}::test_a_misspelt_step_is_told_with_the_nearest",
        "api/test_load.py::test_typos_are_told_with_file_line_and_the_nearest",
    ],
    "one independent worker's death costs all": [
        f"{JOB}::test_one_killed_worker_comes_back_and_the_others_do_not_notice",
        ON_RAY,
    ],
    "resources stay reserved after the end": [
        f"{JOB}::test_a_job_runs_to_its_end_and_leaves_nothing",
        f"{JOB}::test_what_a_channel_held_is_gone_when_the_job_is_stopped",
        "substrate/test_ray.py::test_jobs_share_a_cluster_and_give_back_what_they_had",
    ],
    "one job for each namespace": [
        "substrate/test_ray.py::test_jobs_share_a_cluster_and_give_back_what_they_had",
    ],
}
BEHAVIOURS = {
    "builder": [
        f"{BUILDER}::test_six_roles_and_everything_that_was_said_of_them",
        f"{BUILDER}::test_the_same_job_as_toml",
        f"{BUILDER}::test_extra_flags",
    ],
    "validation": [
        f"{BUILDER}::test_what_is_missing_is_told_all_at_once",
        f"{BUILDER}::test_roles_that_cannot_be_together",
        f"{BUILDER}::test_all_roles_together_but_the_trainer_and_those_named",
    ],
    "torchrun commands": [f"{BUILDER}::test_a_torchrun_command_that_cannot_be_taken_over"],
    "environment": ["master/test_launches.py::test_what_a_role_sets_goes_before_what_the_job_sets"],
    "entry points": [
        "test_worker.py::test_a_function",
        "test_worker.py::test_any_class_with_or_without_run",
        "test_worker.py::test_a_script_with_its_arguments",
    ],
    "what counts as success": ["test_worker.py::test_what_counts_as_success"],
    "exported methods and proxies": [
        f"{GROUP}::test_methods_are_named_marked_and_exported_once",
        f"{GROUP}::test_a_proxy_is_used_like_the_object_itself",
    ],
    "groups": [
        f"{GROUP}::test_everyone_the_first_and_one",
        f"{GROUP}::test_each_worker_can_have_its_own_arguments",
        "test_worker.py::test_roles_that_are_not_there",
    ],
    "stragglers": [
        "backends/test_elastic_rounds.py::test_one_that_takes_twice_as_long_is_a_straggler"
    ],
    "environment of a world": [f"{ELASTIC}::test_a_script_finds_its_world"],
    "placement": ["substrate/test_every_substrate.py::test_gangs_are_placed"],
    "manager": [
        "../core/job/test_machine.py::test_invariants_hold_and_the_journal_gives_the_same_bytes",
        "../core/job/test_machine.py::test_a_new_master_that_finds_everyone_touches_nobody",
        "../core/job/test_machine.py::test_a_job_that_is_asked_to_stop_does",
    ],
    "state backend": [
        "master/test_remote_journals.py::test_what_was_appended_is_there_for_the_next_holder",
    ],
    "actor calls": [
        "rpc/test_calls.py::test_a_call_that_hangs_says_where_on_both_sides",
        "rpc/test_calls.py::test_with_patience_a_call_waits_until_the_worker_is_back",
    ],
    "errors with no, role and job failover": [
        f"{JOB}::test_an_error_is_reported_with_its_traceback_and_ends_the_job_if_it_should",
        f"{JOB}::test_an_error_starts_its_domain_anew",
    ],
    "a communication fault": [
        f"{ELASTIC}::test_one_that_hangs_when_it_is_checked_is_found_and_replaced"
    ],
    "six roles of reinforcement learning": [
        "backends/test_trainer.py::test_six_roles_play_three_episodes",
    ],
}


@pytest.mark.parametrize("what", [*DEFECTS, *BEHAVIOURS])
def test_it_is_tested(what: str) -> None:
    assert missing(Path(__file__).parent, {**DEFECTS, **BEHAVIOURS}[what]) == []
